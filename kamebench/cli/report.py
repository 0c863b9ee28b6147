"""`kamebench report`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from kamebench.report.board import Group
    from kamebench.report.site import Site


@click.command("report")
@click.option("--results", type=click.Path(path_type=Path), default=Path("results"), show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=Path("reports"), show_default=True)
@click.option("--open", "show", is_flag=True, help="Open the first page in the browser.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(results: Path, out: Path, show: bool, as_json: bool) -> None:
    """Build the HTML leaderboard and report from stored runs."""
    import json

    site = build(results, out)
    if as_json:
        click.echo(json.dumps(_plain(site), indent=1))
    else:
        show_site(site)
    if show:
        click.launch(site.index.resolve().as_uri())


def build(results: Path, out: Path) -> Site:
    """Build the site with progress at the terminal."""
    from kamebench.cli.console import Reporter
    from kamebench.errors import UserError
    from kamebench.report.site import build_site

    if not results.is_dir():
        raise UserError(f"{results}: no such folder. Make a run first (kamebench run), or give --results.")
    with Reporter() as reporter:
        stage = ""

        def progress(name: str, done: int, total: int) -> None:
            nonlocal stage
            if name != stage:
                stage = name
                reporter.stage(f"Building {name}", total)
            reporter.step()

        return build_site(results, out, progress)


def _plain(site: Site) -> dict[str, Any]:
    groups = [
        {"task": f"{g.task}@{g.version}", "judge": g.judge, "llm_judge": g.llm_judge, "rows": _rows(g)}
        for g in site.board.groups
    ]
    skipped = [{"run": name, "reason": reason} for name, reason in site.board.skipped]
    built = {"rebuilt": site.rebuilt, "kept": site.kept}
    return {"index": str(site.index), "groups": groups, "skipped": skipped, **built}


def _rows(group: Group) -> list[dict[str, Any]]:
    return [
        {
            "label": row.entry.label,
            "system": row.entry.run.manifest.system,
            "backend": row.entry.run.manifest.backend,
            "role": row.entry.role,
            "run": str(row.entry.run.path),
            "n_runs": row.n_runs,
            "score": row.entry.score.model_dump(),
            "categories": {name: a.model_dump() for name, a in row.entry.categories.items()},
            "latency_p50_ms": row.entry.latency.p50.model_dump(),
            "latency_p95_ms": row.entry.latency.p95.model_dump(),
            "outcomes": row.entry.latency.outcomes,
            "cost_usd": row.entry.cost,
        }
        for row in group.rows
    ]


def show_site(site: Site) -> None:
    from rich.markup import escape

    from kamebench.cli.console import console, table
    from kamebench.cli.summary import number, with_interval

    for group in site.board.groups:
        note = "" if group.llm_judge else " (not comparable with an LLM judge)"
        size = f"{group.n_questions} questions, {group.n_turns} turns"
        console.print(f"\n[bold]{escape(group.title)}[/], {size}{note}", soft_wrap=True)
        rows = [
            {
                "system": row.entry.label + ("" if row.entry.rankable else f" ({row.entry.role})"),
                "score": with_interval(row.entry.score),
                "p50 s": number(row.entry.median_s),
                "p95 s": number(
                    None if row.entry.latency.p95.value is None else row.entry.latency.p95.value / 1000
                ),
                "n": row.entry.score.n,
                "missing": row.entry.score.n_missing,
                "runs": row.n_runs,
                "date": row.entry.run.manifest.started_at[:10],
            }
            for row in group.rows
        ]
        console.print(table(rows))
    for name, reason in site.board.skipped:
        console.print(f"[yellow]left out[/] {escape(name)}: {escape(reason)}")
    console.print(f"{site.rebuilt} run(s) built, {site.kept} unchanged: {site.index}", soft_wrap=True)

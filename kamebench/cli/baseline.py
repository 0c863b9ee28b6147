"""`kamebench baseline set | show | list`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click


@click.group("baseline")
def command() -> None:
    """Keep and show baselines: small files, meant for version control, enough to gate without audio."""


def _folder(function: Any) -> Any:
    option = click.option(
        "--baselines", type=click.Path(path_type=Path), default=Path("baselines"), show_default=True
    )
    return option(function)


@command.command("set")
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUN...")
@click.option("--name", default="main", show_default=True)
@click.option("--score", help="Name of a score file; default the run's headline score.")
@_folder
def set_(runs: tuple[Path, ...], name: str, score: str | None, baselines: Path) -> None:
    """Make a run, or several repeats of one system together, the baseline NAME."""
    from kamebench.gate.baseline import write_baseline
    from kamebench.gate.decision import comparable_or_raise
    from kamebench.stats.snapshot import take
    from kamebench.store import open_run

    snapshots = [take(open_run(path), score) for path in runs]
    comparable_or_raise(snapshots[1:], snapshots[:1])
    path = write_baseline(baselines, name, snapshots)
    click.echo(f"{path}: {', '.join(s.title for s in snapshots)}. Commit it.")


@command.command("show")
@click.argument("name", default="main")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@_folder
def show(name: str, as_json: bool, baselines: Path) -> None:
    """Show where a baseline comes from and its values."""
    from kamebench import stats
    from kamebench.cli.console import console, table
    from kamebench.gate.baseline import read_baseline
    from kamebench.stats.snapshot import joined

    baseline = read_baseline(baselines / f"{name}.json")
    turns = joined(baseline.runs)
    latency = stats.latency_summary(turns)
    figures = [*stats.score_aggregates(turns), latency.p50, *latency.shares.values(), latency.talk_over]
    if as_json:
        click.echo(baseline.model_dump_json())
        return
    for run in baseline.runs:
        commit = (run.git_commit or "no commit")[:12]
        click.echo(
            f"{run.title}, {run.task}@{run.task_version}, {run.started_at}, {commit}, score {run.score}"
        )
    rows = [
        {
            "metric": figure.metric,
            "group": figure.group,
            "value": "-" if figure.value is None else f"{figure.value:.3g}",
            "95 %": f"{figure.low:.3g} to {figure.high:.3g}"
            if figure.low is not None and figure.high is not None
            else figure.reason,
            "n": figure.n,
            "missing": figure.n_missing,
        }
        for figure in figures
    ]
    console.print(table(rows))


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@_folder
def list_(as_json: bool, baselines: Path) -> None:
    """List all baselines; one that cannot be used says why."""
    import json

    from kamebench.cli.console import console, table
    from kamebench.errors import BadRun
    from kamebench.gate.baseline import baseline_files, read_baseline

    rows: list[dict[str, Any]] = []
    for path in baseline_files(baselines):
        row = {"name": path.stem, "label": "", "task": "", "runs": 0, "started": "", "state": "good"}
        try:
            first, *_ = runs = read_baseline(path).runs
            row |= {"label": first.label, "task": f"{first.task}@{first.task_version}", "runs": len(runs)}
            row |= {"started": first.started_at[:19]}
        except BadRun as error:
            row["state"] = str(error)
        rows.append(row)
    if as_json:
        click.echo(json.dumps(rows))
    elif rows:
        console.print(table(rows))
    else:
        click.echo(f"No baselines in {baselines}. Make one with: kamebench baseline set RUN")

"""`kamebench compare`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from kamebench.stats.compare import Comparison


@click.command("compare")
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="A B [C...]")
@click.option("--score", help="Name of a score file; default each run's headline score.")
@click.option("--force", is_flag=True, help="Compare even where what was measured differs.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(runs: tuple[Path, ...], score: str | None, force: bool, as_json: bool) -> None:
    """Compare runs with the first of them, paired by question and turn."""
    import json
    from dataclasses import asdict

    from kamebench.errors import UserError
    from kamebench.stats.compare import compare
    from kamebench.store import open_run

    if len(runs) < 2:
        raise UserError("compare needs two runs at least, one was given. Give the folders of both.")
    first, *others = [open_run(path) for path in runs]
    made = [compare(first, other, score=score, force=force) for other in others]
    if as_json:
        click.echo(json.dumps([_plain(asdict(comparison)) for comparison in made], indent=1))
        return
    for comparison in made:
        _show(comparison)


def _plain(comparison: dict[str, Any]) -> dict[str, Any]:
    results = [{"group": group, **result} for group, result in comparison["results"]]
    return {**comparison, "results": results}


def _show(comparison: Comparison) -> None:
    from kamebench.cli.console import console, table
    from kamebench.gate.outputs import amount

    click.echo(f"{comparison.second}\nagainst {comparison.first}")
    for difference in comparison.differences:
        loud = "NOT COMPARABLE" if difference.fatal else "differs"
        click.echo(click.style(f"{loud}: {difference}", fg="red" if difference.fatal else "yellow"), err=True)
    rows: list[dict[str, Any]] = []
    for group, result in comparison.results:
        low, high = (amount(edge, result.unit, signed=True) for edge in (result.low, result.high))
        rows.append(
            {
                "metric": result.metric + ("" if group == "overall" else f", {group}"),
                "first": amount(result.first, result.unit),
                "second": amount(result.second, result.unit),
                "difference": amount(result.difference, result.unit, signed=True),
                "95 %": result.reason or f"{low} to {high}",
                "d": "-" if result.effect_size is None else f"{result.effect_size:+.2f}",
                "n": str(result.n) + (f" ({result.n_missing} missing)" if result.n_missing else ""),
            }
        )
    console.print(table(rows))
    if comparison.changes:
        click.echo("Questions whose score changed most:")
    for change in comparison.changes:
        click.echo(f"  {change.question_id} ({change.category}) {change.score_change:+.2f}")
        for path in change.listen:
            click.echo(f"    listen: {path}")

"""`kamebench history`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click


@click.command("history")
@click.argument("system")
@click.option("--results", type=click.Path(path_type=Path), default=Path("results"), show_default=True)
@click.option("--task", help="Only runs of this task.")
@click.option(
    "--chart", type=click.Path(path_type=Path), help="Draw a chart to this file (.svg, .png or .pdf)."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(system: str, results: Path, task: str | None, chart: Path | None, as_json: bool) -> None:
    """Show all runs of a SYSTEM over time, with versions and commits."""
    import json

    from kamebench.cli.console import console, table
    from kamebench.gate.history import draw, row_of, runs_of

    rows = [row_of(run) for run in runs_of(system, results, task)]
    if chart is not None:
        draw(rows, system, chart)
        click.echo(f"Chart: {chart}", err=True)
    if as_json:
        click.echo(json.dumps([_plain(row) for row in rows], indent=1))
    else:
        console.print(table([_cells(row) for row in rows]))


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value.model_dump() if hasattr(value, "model_dump") else value for key, value in row.items()}


def _cells(row: dict[str, Any]) -> dict[str, Any]:
    cells: dict[str, Any] = {
        "run": row["run"],
        "task": row["task"],
        "version": row["kamebench"],
        "commit": row["commit"] or "-",
    }
    if row["state"] != "good":
        return cells | {"score": "-", "p50 ms": "-", "faults": "-", "note": row["state"]}
    score, latency = row["score"], row["latency"]
    return cells | {
        "score": _figure(score, ".2f"),
        "p50 ms": _figure(latency, ".0f"),
        "faults": row["faults"],
        "note": score.reason or latency.reason,
    }


def _figure(figure: Any, form: str) -> str:
    if figure.value is None:
        return "-"
    if figure.low is None or figure.high is None:
        return f"{figure.value:{form}}"
    return f"{figure.value:{form}} [{figure.low:{form}}, {figure.high:{form}}]"

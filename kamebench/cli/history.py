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

    from rich.markup import escape

    from kamebench.cli.console import console, table
    from kamebench.gate.history import draw, row_of, runs_of

    rows = [row_of(run) for run in runs_of(system, results, task)]
    if chart is not None:
        draw(rows, system, chart)
        click.echo(f"Chart: {chart}", err=True)
    if as_json:
        click.echo(json.dumps([_plain(row) for row in rows], indent=1))
    else:
        good = [row for row in rows if row["state"] == "good"]
        if good:
            console.print(table([_cells(row) for row in good]))
        for row in rows:
            if row["state"] != "good":
                console.print(f"[yellow]left out[/] {escape(row['state'])}", soft_wrap=True)
            elif why := row["score"].reason or row["latency"].reason:
                console.print(f"[dim]{row['run']}: {escape(why)}", soft_wrap=True)


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value.model_dump() if hasattr(value, "model_dump") else value for key, value in row.items()}


def _cells(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "run": row["run"],
        "task": row["task"],
        "version": row["kamebench"],
        "commit": row["commit"] or "-",
        "score": _figure(row["score"], ".2f"),
        "p50 ms": _figure(row["latency"], ".0f"),
        "faults": row["faults"],
    }


def _figure(figure: Any, form: str) -> str:
    if figure.value is None:
        return "-"
    if figure.low is None or figure.high is None:
        return f"{figure.value:{form}}"
    return f"{figure.value:{form}} [{figure.low:{form}}, {figure.high:{form}}]"

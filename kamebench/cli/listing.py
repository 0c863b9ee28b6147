"""`kamebench list`."""

from __future__ import annotations

from pathlib import Path

import click

KINDS = ("systems", "tasks", "backends", "judges", "recognisers", "voices", "runs")


@click.command("list")
@click.argument("kind", type=click.Choice(KINDS))
@click.option(
    "--root", type=click.Path(path_type=Path, exists=True), help="Folder that holds tasks/ and systems/."
)
@click.option(
    "--results", type=click.Path(path_type=Path, file_okay=False), default=Path("results"), show_default=True
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(kind: str, root: Path | None, results: Path, as_json: bool) -> None:
    """List systems, tasks, back-ends, judges, recognisers, voices or runs."""
    import json

    from kamebench.cli.catalogue import rows_of
    from kamebench.cli.console import console, table

    rows = rows_of(kind, root, results)
    if as_json:
        click.echo(json.dumps(rows))
    elif not rows:
        click.echo(f"No {kind} found.")
    elif kind == "runs":  # a line of its own for each path, so that it can be copied
        for row in rows:
            about = ", ".join(str(row[name]) for name in ("label", "task", "started", "status") if row[name])
            click.echo(f"{row['run']}\n    {about}")
    else:
        console.print(table(rows))

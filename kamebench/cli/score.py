"""`kamebench score`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import click

from kamebench.records import What


@click.command("score")
@click.argument("path", metavar="RUN", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--judge", help="facts, a model's name, or several with commas; default the run's own.")
@click.option("--what", type=click.Choice(get_args(What)), default="spoken", show_default=True)
@click.option(
    "--references",
    type=click.Choice(["gold", "corrected", "original"]),
    help="Set of reference answers; default gold where it is not empty, else corrected.",
)
@click.option("--judge-repeats", "repeats", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--root", type=click.Path(path_type=Path, exists=True), help="Folder that holds tasks/.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
def command(**options: Any) -> None:
    """Score a stored run again, without running the system.

    Another judge, text, set of references or number of repeats makes another score file; the same make the
    same one anew.
    """
    from kamebench.cli.judging import score

    score(**options)

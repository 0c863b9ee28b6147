"""`kamebench score`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import click

from kamebench.cli.dollars import Dollars
from kamebench.records import What


@click.command("score")
@click.argument("path", metavar="RUN", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--judge", help="facts, a model's name, or several with commas; default the run's own.")
@click.option("--judge-url", help="Address of the judge's openai-compatible server.")
@click.option("--what", type=click.Choice(get_args(What)), default="spoken", show_default=True)
@click.option("--ablations", is_flag=True, help="Judge a KAME run at every point between back-end and ear.")
@click.option(
    "--pairwise",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    metavar="RUN",
    help="Judge against this other run instead, each turn in both orders.",
)
@click.option(
    "--references",
    type=click.Choice(["gold", "corrected", "original"]),
    help="Set of reference answers; default gold where it is not empty, else corrected.",
)
@click.option("--judge-repeats", "repeats", type=click.IntRange(min=1), default=1, show_default=True)
@click.option(
    "--preset",
    type=click.Choice(["published"]),
    help="As published: original references, first match, no second asking.",
)
@click.option("--speech-aware", is_flag=True, help="Tell the judge that the answers were spoken.")
@click.option("--no-cache", is_flag=True, help="Ask again what was asked before.")
@click.option("--max-cost", type=Dollars(), metavar="USD", help="Stop when this much was spent.")
@click.option("--dry-run", is_flag=True, help="Only say what would be asked and what it would cost.")
@click.option("--root", type=click.Path(path_type=Path, exists=True), help="Folder that holds tasks/.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
def command(**options: Any) -> None:
    """Score a stored run again, without running the system.

    Another judge, text, set of references or number of repeats makes another score file; the same ones make
    theirs anew. What a model has answered before is not asked again.
    """
    from kamebench.cli.judging import ScoreOptions, score

    score(ScoreOptions(**options))

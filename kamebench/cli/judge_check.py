"""`kamebench judge-check`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from kamebench.cli.dollars import Dollars


@click.command("judge-check")
@click.option("--judge", required=True, help="facts, a model's name, or several with commas.")
@click.option("--judge-url", help="Address of the judge's openai-compatible server.")
@click.option(
    "--task", "task_name", default="spoken-basics", show_default=True, help="Whose references to use."
)
@click.option(
    "--limit", type=click.IntRange(min=1), default=6, show_default=True, help="At most this many questions."
)
@click.option("--references", type=click.Choice(["gold", "corrected", "original"]))
@click.option("--judge-repeats", "repeats", type=click.IntRange(min=1), default=2, show_default=True)
@click.option("--preset", type=click.Choice(["published"]))
@click.option("--speech-aware", is_flag=True, help="Tell the judge that the answers were spoken.")
@click.option("--max-cost", type=Dollars(), metavar="USD", help="Stop when this much was spent.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option(
    "--run",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Store the result with this run.",
)
@click.option("--root", type=click.Path(path_type=Path, exists=True), help="Folder that holds tasks/.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
def command(**options: Any) -> None:
    """Ask a judge to score answers whose quality is known, and count its mistakes."""
    from kamebench.cli.judging import CheckOptions, check

    check(CheckOptions(**options))

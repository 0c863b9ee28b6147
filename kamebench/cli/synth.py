"""`kamebench synth`."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("synth")
@click.argument("task_name", metavar="TASK")
@click.option("--engine", "voice", default="piper:joe", show_default=True, help="ENGINE or ENGINE:VOICE.")
@click.option("--limit", type=click.IntRange(min=1), help="Questions, balanced over the categories.")
@click.option("--category", "categories", multiple=True, help="Only this category (may be repeated).")
@click.option("--seed", type=int, default=0, show_default=True, help="Which questions a limit takes.")
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), help="Write the turns here as FLAC.")
@click.option("--root", type=click.Path(path_type=Path, exists=True), help="Folder that holds tasks/.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(  # noqa: PLR0913 one parameter an option
    *,
    task_name: str,
    voice: str,
    limit: int | None,
    categories: tuple[str, ...],
    seed: int,
    out: Path | None,
    root: Path | None,
    as_json: bool,
) -> None:
    """Speak a task's questions into the audio cache and show what is said.

    Seconds are the whole turn's; 'from' and 'to' are where speech begins and ends in it.
    """
    import json

    from kamebench.cli.console import console, table
    from kamebench.cli.speaking import speak
    from kamebench.tasks import load_task, select

    task = load_task(task_name, root)
    rows = speak(select(task, limit=limit, categories=categories, seed=seed), voice, out)
    if as_json:
        click.echo(json.dumps(rows))
        return
    shown = ("turn", "seconds", "from", "to", "said")
    console.print(table([{key: row[key] for key in shown} for row in rows]))
    console.print(f"{len(rows)} turns, {sum(row['seconds'] for row in rows):.1f} s of audio")

"""`kamebench measure`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from kamebench.vad.base import Detector


@click.command("measure")
@click.argument("paths", nargs=-1, required=True, metavar="FILE|RUN...", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a file, each on its line.")
@click.option("--check", is_flag=True, help="Only compare a run's stored measures with fresh ones.")
def command(paths: tuple[Path, ...], as_json: bool, check: bool) -> None:
    """Measure onset latency in stereo recordings (left the user, right the system) or in stored runs.

    A file is taken as one turn, from the user's first speech to 15 s after the last. A run's folder is
    measured turn by turn and its measures.json written anew.
    """
    from kamebench.errors import UserError
    from kamebench.vad import open_detector

    detector, n_failed = open_detector(), 0
    for path in paths:
        try:
            row = _run(path, check) if path.is_dir() else _file(path, detector)
        except UserError as error:
            if len(paths) == 1:
                raise
            click.echo(f"Error: {error}", err=True)
            n_failed += 1
            continue
        _print(row, as_json)
    if n_failed:
        raise UserError(f"{n_failed} of {len(paths)} could not be measured; see above.")


def _file(path: Path, detector: Detector) -> dict[str, Any]:
    from kamebench.audio import read_two_tracks
    from kamebench.errors import BadAudio
    from kamebench.measure import measure_recording

    user, system = read_two_tracks(path)
    try:
        onset = measure_recording(user, system, detector)
    except BadAudio as error:
        raise BadAudio(f"{path}: {error}") from None
    row = onset.model_dump(exclude={"segments"})
    return {"file": str(path), **row, "segments": [[s.start, s.end] for s in onset.segments]}


def _run(path: Path, check: bool) -> dict[str, Any]:
    from kamebench.cli.console import Reporter
    from kamebench.measure import check_measures, measure_run
    from kamebench.store import open_run

    run = open_run(path)
    with Reporter() as progress:
        if check:
            return {"file": str(path), "turns": check_measures(run, progress), "same": True}
        measured = measure_run(run, progress)
    outcomes = [row.onset.outcome for row in measured.turns]
    counts = {name: outcomes.count(name) for name in sorted({*outcomes})}
    return {"file": str(path), "turns": len(outcomes), "outcomes": counts}


def _print(row: dict[str, Any], as_json: bool) -> None:
    import json

    if as_json:
        click.echo(json.dumps(row))
    elif "outcome" in row:
        latency = "-" if row["latency_ms"] is None else f"{row['latency_ms']:+.0f} ms"
        click.echo(f"{row['file']}: {row['outcome']}, {latency}, {row['backchannels']} backchannel(s)")
    elif "same" in row:
        click.echo(f"{row['file']}: {row['turns']} turn(s) measured again, all as stored")
    else:
        counts = ", ".join(f"{n} {name}" for name, n in row["outcomes"].items())
        click.echo(f"{row['file']}: {row['turns']} turn(s): {counts or 'none was played'}")

"""A stored run measured again from its files."""

from __future__ import annotations

from kamebench import store
from kamebench.audio import SAMPLE_RATE, read_two_tracks
from kamebench.errors import BadRun
from kamebench.measure.onset import BACKCHANNEL
from kamebench.measure.speech import Rules
from kamebench.measure.turn import FLAG_LATE_MS, SECOND_DETECTOR, USELESS_LATE_MS, judge_turn, speech_of
from kamebench.progress import Progress
from kamebench.records import MeasureFile, SessionRecord, TurnMeasure
from kamebench.store import Run
from kamebench.vad import open_detector
from kamebench.vad.base import Detector


def compute(run: Run, progress: Progress | None = None) -> MeasureFile:
    """Measure every turn that was played; changes no file. Turns spoilt by a fault have no row."""
    detector, rows = open_detector(), list[TurnMeasure]()
    if progress is not None:
        progress.stage("Measuring", len(run.sessions))
    for question, session in run.sessions.items():
        rows += _session(run, question, session, detector)
        if progress is not None:
            progress.step(question)
    settings = {
        "detector": dict(detector.settings),
        "second_detector": dict(open_detector(SECOND_DETECTOR).settings),
        "rules": Rules().settings(),
        "backchannel_s": BACKCHANNEL / SAMPLE_RATE,
        "late_frames_ms": FLAG_LATE_MS,
        "unusable_late_ms": USELESS_LATE_MS,
    }
    return MeasureFile(settings=settings, turns=tuple(rows))


def measure_run(run: Run, progress: Progress | None = None) -> MeasureFile:
    """Measure a run and write its `measures.json`."""
    measured = compute(run, progress)
    store.write_derived(run.path, store.MEASURES, measured)
    return measured


def check_measures(run: Run, progress: Progress | None = None) -> int:
    """Measure a run again and compare with what is stored; returns the number of turns compared.

    Raises:
        BadRun: nothing is stored, a turn or a setting comes out differently, or a file of a complete run is
            not the one that its manifest names.
    """
    stored = store.Run(run.path).measures
    if stored is None:
        raise BadRun(f"{run.path}: holds no {store.MEASURES}. Measure it with: kamebench measure {run.path}")
    fresh = MeasureFile.model_validate_json(compute(run, progress).model_dump_json())
    if fresh.settings != stored.settings:
        both = {**fresh.settings, **stored.settings}
        names = [name for name in both if fresh.settings.get(name) != stored.settings.get(name)]

        raise BadRun(
            f"{run.path}: was measured with other settings ({', '.join(names)}). "
            "Measure it again without --check."
        )
    before = {(row.question_id, row.turn): row for row in stored.turns}
    after = {(row.question_id, row.turn): row for row in fresh.turns}
    for key in sorted({*before, *after}):
        if before.get(key) != after.get(key):
            raise BadRun(
                f"{run.path}: question {key[0]}, turn {key[1]} comes out differently: "
                f"{_difference(before.get(key), after.get(key))}. "
                "Restore the run's files, or measure it again without --check."
            )
    if run.manifest.status == "complete":
        run.check()
    return len(after)


def _difference(stored: TurnMeasure | None, fresh: TurnMeasure | None) -> str:
    if stored is None or fresh is None:
        return "it is not stored" if stored is None else "it was not played"
    one, other = stored.model_dump(), fresh.model_dump()
    name = next(name for name in one if one[name] != other[name])
    return f"{name} is stored as {one[name]} and measured as {other[name]}"


def _session(run: Run, question: str, session: SessionRecord, detector: Detector) -> list[TurnMeasure]:
    marks = [mark for mark in session.turns if store.fault_of_turn(session, mark.turn) is None]
    if not marks:
        return []
    _, system = read_two_tracks(run.session_folder(question) / store.AUDIO)
    speech, events = speech_of(system, detector), list(run.events(question))
    starts = [0, *(mark.end_sample for mark in marks[:-1])]
    return [
        judge_turn(question, mark, speech, events, since) for mark, since in zip(marks, starts, strict=True)
    ]

"""The pages of one run: an overview, and one a session with its recording. Built by a worker of its own."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from kamebench.records import SessionRecord, TurnRecord
from kamebench.report import charts, published
from kamebench.report.board import Entry, read_entry, slug_of
from kamebench.report.ladder import ladder, steps
from kamebench.report.opus import write_opus
from kamebench.report.pages import write_page
from kamebench.report.timeline import timeline, tracks_of, word_differences
from kamebench.stats import response_curve
from kamebench.store import AUDIO, MANIFEST, Run, write_text

STAMP = "stamp.txt"
AUDIO_FOLDER = "audio"  # of the site
UP = "../../"


def safe_name(question_id: str) -> str:
    """A question's file name; ids that are not plain get a hash."""
    plain = all(c.isascii() and (c.isalnum() or c in "-_") for c in question_id)
    return question_id if plain and question_id not in ("", "index") else slug_of(question_id, question_id)


def audio_name(session: SessionRecord) -> str | None:
    """Named by content: what two runs share is kept once, and what did not change is never encoded again."""
    sha = session.files.get(AUDIO)
    return None if sha is None else f"{sha[:20]}.opus"


def build_run(path: Path, folder: Path, stamp: str) -> None:
    """Write the pages of the run at `path` into <site>/runs/<slug>; the stamp last: it means whole."""
    run = Run(path)
    entry = read_entry(run)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / STAMP).unlink(missing_ok=True)
    turns: dict[str, list[TurnRecord]] = {}
    for turn in run.turns:
        turns.setdefault(turn.question_id, []).append(turn)
    names = [(question, f"{safe_name(question)}.html") for question in turns]
    for i, (question, name) in enumerate(names):
        session = run.sessions[question]
        tracks = tracks_of(run, question)
        audio = audio_name(session) if tracks is not None else None
        if audio is not None and tracks is not None:
            target = folder.parents[1] / AUDIO_FOLDER / audio
            if not target.exists():
                write_opus(target, np.stack(tracks, axis=1))
        write_page(
            folder / name,
            "session.html",
            UP,
            e=entry,
            session=session,
            turns=turns[question],
            line=timeline(run, session, turns[question], tracks),
            audio=f"{UP}{AUDIO_FOLDER}/{audio}" if audio else None,
            diffs={t.turn: _differences(t) for t in turns[question]},
            before=names[i - 1] if i else None,
            after=names[i + 1] if i + 1 < len(names) else None,
        )
    write_page(folder / "index.html", "run.html", UP, **overview(entry, dict(names)))
    write_text(folder / STAMP, stamp + "\n")


def stamp_of(run: Run, code: str) -> str:
    """Changes with all that a page shows: the manifest holds every file's hash, `code` is kamebench's own."""
    return hashlib.sha256(code.encode() + (run.path / MANIFEST).read_bytes()).hexdigest()


def overview(entry: Entry, pages: dict[str, str]) -> dict[str, Any]:
    """Everything the run's page shows."""
    run, latency, figures = entry.run, entry.latency, published.read()
    stages, n_staged = mean_stages(run.turns)
    return {
        "e": entry,
        "scores": [entry.score, *entry.categories.values()],
        "latencies": [
            ("median, s", latency.p50, 1000),
            ("p90, s", latency.p90, 1000),
            ("p95, s", latency.p95, 1000),
            ("clipped median, s", latency.clipped_median, 1000),
            ("clipped mean, s", latency.clipped_mean, 1000),
            ("share within 1 frame", latency.within_frame, 1),
            ("share within 500 ms", latency.within_500_ms, 1),
            ("talk-over share", latency.talk_over, 1),
            ("length of response, s", latency.response_s, 1),
        ],
        "curve": charts.curve(response_curve(entry.table)),
        "stages": charts.stacked(stages) if stages else (),
        "n_staged": n_staged,
        "ladder": ladder(run, figures if figures.fit(run.manifest.task, entry.llm_judge) else None),
        "steps": steps(run),
        "turns": [_turn_row(t, entry.score_name, pages) for t in run.turns],
        "faults": [
            {
                "question_id": t.question_id,
                "turn": t.turn,
                **t.fault.model_dump(include={"party", "kind", "message"}),
            }
            for t in run.turns
            if t.fault is not None
        ],
        "pacing": pacing(run.turns),
        "budget": budget(entry),
        "usage": flat(run.manifest.usage),
        "settings": settings(run),
    }


def _differences(turn: TurnRecord) -> tuple[tuple[str, str], ...]:
    text = turn.transcript
    return word_differences(text.own_text, text.text) if text else ()


def _turn_row(turn: TurnRecord, score: str | None, pages: dict[str, str]) -> dict[str, Any]:
    verdict = turn.verdicts.get(score or "")
    return {
        "question_id": turn.question_id,
        "turn": turn.turn,
        "category": turn.category,
        "outcome": turn.measure.onset.outcome,
        "latency_ms": turn.measure.onset.latency_ms,
        "score": verdict.score if verdict else None,
        "text": turn.transcript.text if turn.transcript else None,
        "page": pages.get(turn.question_id),
    }


def mean_stages(turns: list[TurnRecord]) -> tuple[dict[str, float], int]:
    """Mean ms of every part over the turns that have all parts of the most common pipeline."""
    staged = [t.measure.stages_ms for t in turns if t.measure.stages_ms]
    if not staged:
        return {}, 0
    shapes = [tuple(parts) for parts in staged]
    shape = max(dict.fromkeys(shapes), key=shapes.count)
    same = [parts for parts in staged if tuple(parts) == shape]
    return {name: float(np.mean([parts[name] for parts in same])) for name in shape}, len(same)


def pacing(turns: list[TurnRecord]) -> dict[str, float] | None:
    marks = [t.mark.pacing for t in turns if t.mark is not None]
    if not marks:
        return None
    return {
        "p50": float(np.median([m.p50_ms for m in marks])),
        "p99": max(m.p99_ms for m in marks),
        "max": max(m.max_ms for m in marks),
        "unusable": sum(not t.measure.pacing_usable for t in turns),
    }


def budget(entry: Entry) -> list[dict[str, Any]]:
    """The median latency under other detector settings, on turns that have both."""
    rows: list[dict[str, Any]] = []
    measures = [t.measure for t in entry.run.turns]
    for name in dict.fromkeys(name for m in measures for name in m.sensitivity_ms):
        pairs = [
            (m.onset.latency_ms, m.sensitivity_ms[name])
            for m in measures
            if m.onset.latency_ms is not None and m.sensitivity_ms.get(name) is not None
        ]
        if pairs:
            base, other = (float(np.median(np.array(side, float))) for side in zip(*pairs, strict=True))
            rows.append({"name": name, "p50": other, "shift": other - base, "n": len(pairs)})
    return rows


def settings(run: Run) -> list[tuple[str, list[tuple[str, str]]]]:
    """The manifest in parts; file hashes are counted, not listed."""
    dumped = run.manifest.model_dump(mode="json")
    nested = ("configuration", "packages", "hardware", "assets", "audio")
    left_out = (*nested, "files", "usage", "questions")
    plain = {name: value for name, value in dumped.items() if name not in left_out}
    plain |= {
        "questions": ", ".join(dumped["questions"]),
        "files": f"{len(dumped['files'])} files, each hashed",
    }
    parts = [("run", flat(plain))]
    parts += [(name, flat(dumped[name])) for name in nested if dumped[name]]
    if run.measures is not None:
        parts.append(("onset detector", flat(run.measures.settings)))
    if run.transcripts is not None:
        parts.append(("recogniser", flat({"name": run.transcripts.recogniser, **run.transcripts.settings})))
    parts += [(f"judge {name}", flat(file.settings)) for name, file in run.scores.items()]
    return parts


def flat(values: Any, prefix: str = "", limit: int = 1000) -> list[tuple[str, str]]:
    """Nested values as dotted names with texts, in their order."""
    rows: list[tuple[str, str]] = []
    if isinstance(values, dict):
        for name, value in values.items():
            rows += flat(value, f"{prefix}.{name}" if prefix else str(name), limit)
    elif isinstance(values, list | tuple) and any(isinstance(v, dict | list) for v in values):
        for i, value in enumerate(values):
            rows += flat(value, f"{prefix}.{i}", limit)
    else:
        shown = ", ".join(map(str, values)) if isinstance(values, list | tuple) else str(values)
        rows.append((prefix, "none" if values is None else shown))
    return rows[:limit]

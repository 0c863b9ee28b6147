"""Whole runs on disk with planted scores and latencies, made without any system."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kamebench import store
from kamebench.audio import SAMPLE_RATE, TwoTrackWriter, seconds
from kamebench.records import (
    FaultInfo,
    Manifest,
    MeasureFile,
    Onset,
    Pacing,
    Segment,
    SessionRecord,
    SpokenTurn,
    Transcript,
    TranscriptFile,
    TurnMark,
    TurnMeasure,
    Verdict,
    VerdictFile,
)

CATEGORIES = ("reasoning", "stem", "humanities")
LEAD_S, SPEECH_S, TURN_S = 1.0, 2.0, 6.0


@dataclass(frozen=True)
class Planted:
    """One turn as it shall come out. latency_ms None: silent (fault False) or faulted (fault True)."""

    score: float | None = 5.0
    latency_ms: float | None = 400.0
    fault: bool = False
    text: str = "It is four."
    talk_over_share: float = 0.0


def sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def make_run(
    results: Path,
    plan: dict[str, list[Planted]],
    *,
    system: str = "scripted",
    backend: str | None = "local",
    task: str = "synthetic",
    version: str = "1",
    run_id: str = "20260101T000000-aaaaaa",
    judge: str = "facts",
    started_at: str = "2026-01-01T00:00:00+00:00",
    categories: dict[str, str] | None = None,
    audio: bool = False,
) -> store.Run:
    """Write a complete run: question id -> planted turns. Categories go round unless given."""
    folder = results / system / f"{task}@{version}" / run_id
    ids = tuple(plan)
    category = categories or {q: CATEGORIES[i % 3] for i, q in enumerate(ids)}
    manifest = Manifest(
        kamebench_version="0.1.0",
        run_id=run_id,
        status="running",
        started_at=started_at,
        system=system,
        backend=backend,
        label=f"{system} ({backend})" if backend else system,
        task=task,
        task_version=version,
        task_sha256=sha(task + version),
        pace="virtual",
        seed=0,
        questions=ids,
        n_turns=sum(len(turns) for turns in plan.values()),
        configuration={"judge": judge},
        audio={f"{q}/{t}": sha(f"{q}/{t}") for q in ids for t in range(1, len(plan[q]) + 1)},
        primary_score=f"{judge}.spoken",
    )
    store.write_record(folder / store.MANIFEST, manifest)
    measures: list[TurnMeasure] = []
    texts: list[Transcript] = []
    verdicts: list[Verdict] = []
    for question in ids:
        marks: list[TurnMark] = []
        fault: FaultInfo | None = None
        for turn, planted in enumerate(plan[question], start=1):
            at = seconds(LEAD_S + (turn - 1) * TURN_S)
            end = at + seconds(SPEECH_S)
            if planted.fault or fault:
                fault = fault or FaultInfo(party="backend", kind="timeout", message="planted", turn=turn)
                verdicts.append(
                    Verdict(question_id=question, turn=turn, status="missing", reason="backend: timeout")
                )
                continue
            spoken = SpokenTurn(
                text_written=f"Question {question} turn {turn}?",
                text_spoken=f"Question {question} turn {turn}?",
                audio_sha256=sha(f"{question}/{turn}"),
                n_samples=seconds(SPEECH_S),
                speech_start_sample=0,
                speech_end_sample=seconds(SPEECH_S),
                engine="synthetic",
                engine_version="1",
                voice="none",
            )
            marks.append(
                TurnMark(
                    turn=turn,
                    spoken=spoken,
                    start_sample=at,
                    user_start_sample=at,
                    user_end_sample=end,
                    window_end_sample=end + seconds(15),
                    end_sample=at + seconds(TURN_S),
                    end_reason="quiet" if planted.latency_ms is not None else "no_response",
                    waited_s=0.0,
                    pacing=Pacing(p50_ms=0.1, p99_ms=1.0, max_ms=2.0),
                )
            )
            measures.append(_measure(question, turn, at, end, planted))
            texts.append(
                Transcript(
                    question_id=question,
                    turn=turn,
                    text=planted.text if planted.latency_ms is not None else None,
                    reason="" if planted.latency_ms is not None else "silent",
                    user_wer=0.0,
                )
            )
            if planted.latency_ms is None:
                verdict = Verdict(
                    question_id=question, turn=turn, status="silent", score=1.0, reason="silent"
                )
            elif planted.score is None:
                verdict = Verdict(question_id=question, turn=turn, status="unparsed", reason="planted")
            else:
                verdict = Verdict(
                    question_id=question, turn=turn, status="scored", score=planted.score, answer=planted.text
                )
            verdicts.append(verdict)
        _session(folder / "sessions" / question, question, category[question], marks, fault, plan, audio)
    store.write_record(
        folder / store.MEASURES, MeasureFile(settings={"detector": "synthetic"}, turns=tuple(measures))
    )
    store.write_record(
        folder / store.TRANSCRIPTS, TranscriptFile(recogniser="synthetic", settings={}, turns=tuple(texts))
    )
    file = VerdictFile(judge=judge, settings={"judge": judge}, turns=tuple(verdicts))
    store.write_record(folder / "scores" / f"{file.name}.json", file)
    store.seal(folder, status="complete", finished_at=started_at)
    return store.open_run(folder)


def _measure(question: str, turn: int, at: int, end: int, planted: Planted) -> TurnMeasure:
    latency = planted.latency_ms
    if latency is None:
        onset = Onset(outcome="silent", user_start_sample=at, user_end_sample=end, censored_at_ms=15_000.0)
        return TurnMeasure(question_id=question, turn=turn, onset=onset)
    start = end + round(latency * SAMPLE_RATE / 1000)
    return TurnMeasure(
        question_id=question,
        turn=turn,
        onset=Onset(
            outcome="answered" if latency >= 0 else "premature",
            user_start_sample=at,
            user_end_sample=end,
            onset_sample=start,
            latency_ms=latency,
            latency_frames=start // 1920 - end // 1920,
            segments=(Segment(start=start, end=start + seconds(1.0)),),
        ),
        talk_over_share=planted.talk_over_share,
        response_s=1.0,
        speech_s=1.0,
    )


def _session(
    folder: Path,
    question: str,
    category: str,
    marks: list[TurnMark],
    fault: FaultInfo | None,
    plan: dict[str, list[Planted]],
    audio: bool,
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    n_samples = seconds(LEAD_S + TURN_S * len(plan[question]))
    if audio:
        rng = np.random.default_rng(0)
        user = np.zeros(n_samples, np.float32)
        for mark in marks:
            user[mark.user_start_sample : mark.user_end_sample] = 0.1
        system = (rng.standard_normal(n_samples) * 0.01).astype(np.float32)
        with TwoTrackWriter(folder / store.AUDIO) as writer:
            writer.write(user, system)
    rows = [{"kind": "text_out", "t_ns": 0, "frame": 0, "text": "hello"}]
    store.write_text(folder / store.EVENTS, "".join(json.dumps(row) + "\n" for row in rows))
    record = SessionRecord(
        question_id=question,
        category=category,
        seed=0,
        started_at="2026-01-01T00:00:00+00:00",
        pace="virtual",
        turns=tuple(marks),
        n_turns_expected=len(plan[question]),
        fault=fault,
        n_samples=n_samples,
        clipped_samples=0,
        end_pointer="synthetic",
        files=store.hashes_of(folder),
    )
    store.write_record(folder / store.SESSION, record)

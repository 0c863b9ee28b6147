"""A KAME session played by the session runner, on a model that only counts, under a virtual clock."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from kamebench.asr.scripted import ScriptedRecogniser, ScriptedResult
from kamebench.audio import FRAME_SAMPLES, Pcm
from kamebench.clock import NS_PER_MS, Clock, Pace, VirtualClock
from kamebench.llm.base import TurnContext
from kamebench.oracle import log as oracle_log
from kamebench.oracle.log import Header, LogWriter
from kamebench.oracle.loop import OracleUpdate, Surroundings, TandemLoop
from kamebench.oracle.rebuild import rebuild_stream
from kamebench.records import SpokenTurn
from kamebench.session import Playing, Recorded, Timing, TurnInput, record
from kamebench.systems.base import Capabilities, Session, SessionContext, System
from kamebench.systems.kame_session import KameSession, Stepped
from kamebench.vad.base import StreamingDetector
from tests.unit.oracle_parts import INITIAL, PAD, Answer, CountingModel, TimedBackend, WordTokenizer

TIMING = Timing(
    lead_in_s=0.4, quiet_before_s=0.0, wait_limit_s=0.4, quiet_after_s=0.2, window_s=2.0, limit_s=2.0
)


class Deaf(StreamingDetector):
    name = "deaf"

    def is_speech(self, pcm: Pcm) -> bool:
        return False


class Model:
    """Says its frame's number on the audio; each step takes `step_ms` of the base clock."""

    def __init__(self, clock: Clock, step_ms: int, fail_at: int | None) -> None:
        self.counting, self.clock, self.step_ms, self.fail_at = CountingModel(), clock, step_ms, fail_at
        self.closed = 0
        self.frame = 0

    async def step(self, pcm: Pcm, updates: Sequence[OracleUpdate]) -> Stepped:
        frame, self.frame = self.frame, self.frame + 1
        if frame == self.fail_at:
            raise RuntimeError("out of memory")
        oracle = self.counting.step(frame, tuple(updates))
        if self.step_ms:
            await self.clock.sleep_until_ns(self.clock.now_ns() + self.step_ms * NS_PER_MS)
        audio = np.full(FRAME_SAMPLES, frame / 1000, np.float32)
        return Stepped(audio if frame else None, PAD if frame else None, oracle)

    async def aclose(self) -> None:
        self.closed += 1


class Kame(System):
    capabilities = Capabilities(full_duplex=True, frame_synchronous=True, knows_idle=True)

    def __init__(
        self, clock: Clock, heard: list[ScriptedResult], answers: list[Answer], **model: int
    ) -> None:
        self.clock, self.heard, self.answers = clock, heard, answers
        self.model = Model(clock, model.get("step_ms", 0), model.get("fail_at"))

    def session(self, context: SessionContext) -> Session:
        tokenizer = WordTokenizer()

        def open_loop() -> TandemLoop:
            writer = LogWriter(context.folder, Header(pad_id=PAD, initial_id=INITIAL))
            around = Surroundings(context.activity, context.emit, lambda: context.turn)
            backend = TimedBackend(self.clock, self.answers)
            return TandemLoop(backend, ScriptedRecogniser(self.heard), tokenizer, writer, around)

        async def open_model(seed: int) -> Model:
            return self.model

        return KameSession(context, open_model, open_loop, tokenizer)


def turn() -> TurnInput:
    pcm = np.full(FRAME_SAMPLES * 10, 0.1, np.float32)
    spoken = SpokenTurn(
        text_written="a",
        text_spoken="a",
        audio_sha256="0" * 64,
        n_samples=len(pcm),
        speech_start_sample=0,
        speech_end_sample=len(pcm),
        engine="none",
        engine_version="1",
        voice="none",
    )
    return TurnInput(1, spoken, pcm, TurnContext("t", "q", "stem", 1))


def play(folder: Path, pace: Pace, **options: int) -> tuple[Recorded, Kame]:
    import asyncio

    async def scenario(clock: VirtualClock) -> tuple[Recorded, Kame]:
        heard = [ScriptedResult(9, "what time"), ScriptedResult(16, "what time is it", final=True)]
        answers = [Answer(((100, "Wait"),)), Answer(((310, "It"), (350, " is"), (900, " noon.")), end_ms=950)]
        system = Kame(clock, heard, answers, **options)
        return await record(system, [turn()], folder, Deaf(), Playing(pace, 0, TIMING, clock)), system

    async def run() -> tuple[Recorded, Kame]:
        clock = VirtualClock()
        return await clock.run(scenario(clock))

    return asyncio.run(run())


@pytest.mark.parametrize(("pace", "step_ms"), [("virtual", 0), ("lockstep", 0), ("lockstep", 250)])
def test_the_log_is_the_script_frame_by_frame(tmp_path: Path, pace: Pace, step_ms: int) -> None:
    """Heard at frames 9 and 16, asked at 13 and 19 (1.04, 1.52 s), answered 100, 310, 350, 900 ms later."""
    recorded, system = play(tmp_path, pace, step_ms=step_ms)
    assert recorded.fault is None
    log = oracle_log.read(tmp_path)
    assert [(r.frame, r.reason, r.turn) for r in log.requests] == [(13, "first", 1), (19, "final", 1)]
    assert [(i.frame, i.reset, i.text) for i in log.injections] == [
        (15, True, ""),
        (15, False, "Wait"),
        (23, True, ""),
        (23, False, "It"),
        (24, False, " is"),
        (31, False, " noon."),
    ]
    assert list(rebuild_stream(log) or ()) == system.model.counting.consumed
    assert [step.oracle for step in log.steps] == system.model.counting.consumed
    assert system.model.closed == 1
    rows = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    out = [row for row in rows if row["kind"] == "audio_out"]
    assert [row["frame"] for row in out] == list(range(1, len(log.steps)))
    if pace == "lockstep":
        assert all(row["t_ns"] == row["frame"] * 80_000_000 for row in out)


def test_a_failing_model_is_a_fault_of_the_system(tmp_path: Path) -> None:
    recorded, system = play(tmp_path, "lockstep", fail_at=20)
    assert recorded.fault is not None
    assert (recorded.fault.party, recorded.fault.kind, recorded.fault.turn) == ("system", "crash", 1)
    assert "out of memory" in recorded.fault.message
    assert len(oracle_log.read(tmp_path).steps) == 20
    assert system.model.closed == 1

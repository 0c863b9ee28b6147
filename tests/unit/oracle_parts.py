"""Parts that oracle tests share: a word tokenizer, a timed back-end, a model that only counts."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from kamebench.asr.scripted import ScriptedRecogniser, ScriptedResult
from kamebench.audio import FRAME_NS, FRAME_SAMPLES, Frame
from kamebench.clock import NS_PER_MS, Activity, Clock, StreamClock
from kamebench.errors import BackendFault
from kamebench.events import Event
from kamebench.llm.base import Backend, ChatRequest, StreamEnd, TextChunk, Usage
from kamebench.oracle.log import Header, LogWriter, OracleLog
from kamebench.oracle.loop import LoopSettings, OracleUpdate, Surroundings, TandemLoop

PAD, INITIAL = 3, 200
SILENCE = np.zeros(FRAME_SAMPLES, np.float32)


class WordTokenizer:
    """One token a word, numbered from 10 in order of first use; 'long-word' is as many as it has hyphens."""

    def __init__(self) -> None:
        self.pieces: list[str] = []

    def encode(self, text: str) -> Sequence[int]:
        found: list[int] = []
        for word in text.split():
            for at, part in enumerate(word.split("-")):
                piece = part if at else "▁" + part
                if piece not in self.pieces:
                    self.pieces.append(piece)
                found.append(10 + self.pieces.index(piece))
        return found

    def id_to_piece(self, token: int) -> str:
        return self.pieces[token - 10]


@dataclass(frozen=True)
class Answer:
    """Chunks at milliseconds of the base clock since the request; then the end, or a fault, or nothing."""

    chunks: tuple[tuple[int, str], ...] = ()
    end_ms: int | None = None
    fault: str | None = None


@dataclass
class TimedBackend(Backend):
    """Answers request n with answer n (the last one again when they run out)."""

    clock: Clock
    answers: Sequence[Answer]
    name: str = "timed"
    family: str = "local"
    asked: list[ChatRequest] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)

    async def stream(self, request: ChatRequest) -> AsyncIterator[TextChunk | StreamEnd]:
        self.asked.append(request)
        number = len(self.asked)
        answer = self.answers[min(number, len(self.answers)) - 1]
        began = self.clock.now_ns()
        try:
            for at_ms, text in answer.chunks:
                await self.clock.sleep_until_ns(began + at_ms * NS_PER_MS)
                yield TextChunk(text)
            end_ms = 10**9 if answer.end_ms is None else answer.end_ms
            await self.clock.sleep_until_ns(began + end_ms * NS_PER_MS)
            if answer.fault:
                raise BackendFault(answer.fault, kind=answer.fault, retryable=True)
            yield StreamEnd("stop", Usage(7, 3))
        finally:
            self.closed.append(number)


class CountingModel:
    """Consumes the oracle as KAME does, written independently of `rebuild`; says nothing."""

    def __init__(self) -> None:
        self.origin: int | None = None
        self.stream: list[int] = []
        self.consumed: list[int] = []

    def step(self, frame: int, updates: tuple[OracleUpdate, ...]) -> int:
        for update in updates:
            if update.reset or self.origin is None:
                self.origin, self.stream = frame, [INITIAL]
            self.stream += update.tokens
        index = -1 if self.origin is None else frame - self.origin
        token = self.stream[index] if 0 <= index < len(self.stream) else PAD
        self.consumed.append(token)
        return token


@dataclass
class Played:
    log: OracleLog
    model: CountingModel
    backend: TimedBackend
    events: list[Event]
    tokenizer: WordTokenizer
    error: BaseException | None = None


async def play(
    clock: Clock,
    folder: Path,
    heard: Sequence[ScriptedResult],
    answers: Sequence[Answer],
    *,
    n_frames: int,
    settings: LoopSettings | None = None,
    step_ms: int = 0,
    says: dict[int, str] | None = None,
    stalled: range = range(0),
) -> Played:
    """Run the loop for n frames; in `lockstep` each step takes `step_ms` of the base clock, uncharged.

    The steps of `stalled` frames are made up for with the first frame after them.
    """
    stream = StreamClock(clock)
    activity, tokenizer, model = Activity(stream), WordTokenizer(), CountingModel()
    backend, events = TimedBackend(clock, answers), []
    log = LogWriter(folder, Header(pad_id=PAD, initial_id=INITIAL))
    loop = TandemLoop(
        backend, ScriptedRecogniser(heard), tokenizer, log, Surroundings(activity, events.append), settings
    )
    played = Played(log.log, model, backend, events, tokenizer)
    loop.start()
    try:
        for k in range(n_frames):
            await stream.advance_to_ns(k * FRAME_NS, activity)
            await loop.send(Frame(k, SILENCE))
            for step in [] if k in stalled else range(len(model.consumed), k + 1):
                oracle = model.step(step, loop.updates(step))
                if step_ms:
                    with stream.stopped():
                        await clock.sleep_until_ns(clock.now_ns() + step_ms * NS_PER_MS)
                said = (says or {}).get(step)
                loop.stepped(step, oracle, tokenizer.encode(said)[0] if said else PAD)
    except Exception as error:
        played.error = error
    finally:
        await loop.aclose()
    return played

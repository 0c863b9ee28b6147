"""The cascade's own logic with engines whose answers are known: order, history, barge-in, joining, faults."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import numpy as np

from kamebench.asr.base import Recognised, Recogniser
from kamebench.audio import FRAME_NS, FRAME_SAMPLES, Frame, Pcm, seconds
from kamebench.clock import Activity, StreamClock
from kamebench.errors import BackendFault, EngineFault
from kamebench.events import AudioOut, Event, Fault, Heard, OutputFlushed, StageMark, TextOut
from kamebench.llm.base import Backend, ChatRequest, StreamEnd, TextChunk
from kamebench.speech.base import SpeechEngine
from kamebench.systems import cascade
from kamebench.systems.base import SessionContext
from kamebench.vad.base import StreamingDetector


class Loud(StreamingDetector):
    name = "loud"

    def is_speech(self, pcm: Pcm) -> bool:
        return bool(pcm.max() > 0.5)


class Counting(Recogniser):
    """Says how many frames of speech it was given."""

    name = "counting"

    def transcribe(self, pcm: Pcm) -> Recognised:
        return Recognised(f"{int((pcm > 0.5).sum()) // FRAME_SAMPLES} frames")


class Tone(SpeechEngine):
    name, version, voice = "tone", "1", "a"

    def __init__(self, length_s: float = 1.0, fail: bool = False) -> None:
        self._length_s, self._fail = length_s, fail

    def stream(self, text: str) -> Iterator[Pcm]:
        if self._fail:
            raise EngineFault("the voice died", kind="crash", party="synthesiser")
        yield np.full(seconds(self._length_s), 0.25, np.float32)


class Echo(Backend):
    """Answers in two sentences; keeps the requests."""

    name, family = "echo", "test"

    def __init__(self, fail: bool = False, gate: asyncio.Event | None = None) -> None:
        self.requests: list[ChatRequest] = []
        self._fail, self._gate = fail, gate

    async def stream(self, request: ChatRequest) -> AsyncIterator[TextChunk | StreamEnd]:
        self.requests.append(request)
        if self._fail:
            raise BackendFault("no answer", kind="timeout", retryable=True)
        if self._gate is not None:
            await self._gate.wait()
        for piece in ("You said ", "it. ", "That is ", "all."):
            yield TextChunk(piece)
        yield StreamEnd("stop")


class Stage:
    """A cascade session driven frame by frame, stream time following the frames."""

    def __init__(self, tmp_path: Path, monkeypatch, backend: Backend, voice: SpeechEngine) -> None:
        monkeypatch.setattr(cascade, "open_streaming_detector", lambda name: Loud())
        self.events: list[Event] = []
        self.clock = StreamClock()
        self.context = SessionContext(
            self.clock, Activity(self.clock), self.events.append, "virtual", 0, tmp_path
        )
        parts = cascade.Parts(cascade.CascadeOptions(hangover_ms=240), Counting(), voice, backend)
        self.session = cascade.CascadeSession(self.context, parts)
        self.index = 0

    async def frames(self, pattern: str) -> None:
        for letter in pattern:
            await self.clock.advance_to_ns(self.index * FRAME_NS, self.context.activity)
            pcm = np.full(FRAME_SAMPLES, float(letter == "x"), np.float32)
            await self.session.send(Frame(self.index, pcm))
            self.index += 1

    async def idle(self) -> None:
        await asyncio.wait_for(self.context.activity.wait_idle(), 5)

    def of(self, kind: type[Event]) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]


async def test_stages_come_in_order_and_sentences_are_spoken(tmp_path, monkeypatch) -> None:
    stage = Stage(tmp_path, monkeypatch, Echo(), Tone())
    await stage.frames("xxxx...")
    await stage.idle()
    marks = [event.stage for event in stage.of(StageMark)]
    assert marks == ["speech_end", "asr_done", "llm_first_token", "first_sentence", "tts_first_chunk"]
    assert [event.text for event in stage.of(Heard)] == ["4 frames"]
    assert [event.text for event in stage.of(TextOut)] == ["You said it. ", "That is all. "]
    assert len(stage.of(AudioOut)) == 2
    await stage.session.aclose()
    await stage.session.aclose()


async def test_the_conversation_so_far_is_sent(tmp_path, monkeypatch) -> None:
    backend = Echo()
    stage = Stage(tmp_path, monkeypatch, backend, Tone())
    await stage.frames("xxxx...")
    await stage.idle()
    await stage.frames("." * 40 + "xx...")
    await stage.idle()
    said = [(m.role, m.content) for m in backend.requests[1].messages[1:]]
    assert said == [
        ("user", "4 frames"),
        ("assistant", "You said it. That is all."),
        ("user", "2 frames"),
    ]
    await stage.session.aclose()


async def test_barge_in_flushes_and_remembers_only_what_was_heard(tmp_path, monkeypatch) -> None:
    backend = Echo()
    stage = Stage(tmp_path, monkeypatch, backend, Tone(length_s=4.0))
    await stage.frames("xxxx...")
    await stage.idle()
    await stage.frames("." * 10 + "xx...")  # the first sentence is being heard
    await stage.idle()
    assert len(stage.of(OutputFlushed)) == 1
    assert ("assistant", "You said it.") in [(m.role, m.content) for m in backend.requests[1].messages]
    await stage.session.aclose()


async def test_speech_before_anything_was_heard_is_the_same_utterance(tmp_path, monkeypatch) -> None:
    gate = asyncio.Event()
    backend = Echo(gate=gate)
    stage = Stage(tmp_path, monkeypatch, backend, Tone())
    await stage.frames("xxxx...")
    await stage.frames("xxx")  # goes on while the answer is being thought about
    gate.set()
    await stage.frames("...")
    await stage.idle()
    assert [event.text for event in stage.of(Heard)][-1] == "7 frames"
    assert [m.role for m in backend.requests[-1].messages] == ["system", "user"]
    assert stage.of(OutputFlushed) == []
    await stage.session.aclose()


async def test_a_backend_fault_is_reported_once_and_then_raised(tmp_path, monkeypatch) -> None:
    stage = Stage(tmp_path, monkeypatch, Echo(fail=True), Tone())
    await stage.frames("xxxx...")
    await stage.idle()
    (fault,) = stage.of(Fault)
    assert (fault.party, fault.fault, fault.retryable) == ("backend", "timeout", True)
    try:
        await stage.frames(".")
    except BackendFault:
        pass
    else:
        raise AssertionError("the next frame must fail")
    await stage.session.aclose()


async def test_a_voice_that_dies_is_the_synthesisers_fault(tmp_path, monkeypatch) -> None:
    stage = Stage(tmp_path, monkeypatch, Echo(), Tone(fail=True))
    await stage.frames("xxxx...")
    await stage.idle()
    (fault,) = stage.of(Fault)
    assert fault.party == "synthesiser"
    await stage.session.aclose()


async def test_closing_in_the_middle_of_an_answer_leaves_nothing(tmp_path, monkeypatch) -> None:
    stage = Stage(tmp_path, monkeypatch, Echo(gate=asyncio.Event()), Tone())
    await stage.frames("xxxx...")
    assert not stage.context.activity.idle
    await stage.session.aclose()
    assert stage.context.activity.idle

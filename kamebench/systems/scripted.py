"""The system whose answer is known: it speaks given audio at a chosen sample, or never, or fails.

Tests demand exactly the onset that was asked for; new adapters can start from this file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from kamebench.audio import Frame, Pcm, read_mono, samples_to_ns, seconds
from kamebench.errors import SystemFault
from kamebench.events import AudioOut, Closed, Fault, Heard, OutputFlushed, StageMark, TextOut
from kamebench.systems import Options, Setup, read_options
from kamebench.systems.base import Capabilities, Session, SessionContext, System

FaultKind = Literal["error", "close", "stall"]


class ScriptedOptions(Options):
    """What the system does in every turn.

    latency_ms: response start after the user's last sample of speech; negative: before; None: never.
    audio: a mono file that is spoken; default a sentence shipped with kamebench.
    text: what that audio says. backchannel_ms: a short word this long after the user begins to speak.
    greeting_s: speaks once at this time before any turn. answer_s: cuts or repeats the audio to this length.
    flush_after_ms: throws away what was not heard this long after the response began.
    fault: in turn `fault_turn`, `fault_after_ms` after the user's first sample of speech: "error" fails,
    "close" ends the session, "stall" never accepts another frame until closed.
    """

    latency_ms: float | None = 400.0
    audio: Path | None = None
    text: str = "The answer is forty two, and that is all I have to say."
    answer_s: float | None = Field(default=None, gt=0)
    backchannel_ms: float | None = None
    greeting_s: float | None = Field(default=None, ge=0)
    flush_after_ms: float | None = Field(default=None, ge=0)
    fault: FaultKind | None = None
    fault_turn: int = Field(default=1, ge=1)
    fault_after_ms: float = 0.0


class ScriptedSession(Session):
    """Watches the turns begin and speaks by the script."""

    def __init__(self, context: SessionContext, options: ScriptedOptions, voice: Pcm) -> None:
        self._context, self._options, self._voice = context, options, voice
        self._frame = -1
        self._turn = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._error: SystemFault | None = None
        self._stalled = asyncio.Event()
        if options.greeting_s is not None:
            self._start(self._speak(seconds(options.greeting_s), voice, "greeting"))

    async def send(self, frame: Frame) -> None:
        self._frame = frame.index
        context = self._context
        if context.turn is not None and context.turn.turn != self._turn and context.user_span is not None:
            self._turn = context.turn.turn
            self._begin_turn(*context.user_span)
        await asyncio.sleep(0)
        if self._error is not None:
            raise self._error
        if self._stalled.is_set():
            await asyncio.Event().wait()

    def _begin_turn(self, user_start: int, user_end: int) -> None:
        options = self._options
        if options.fault is not None and self._turn == options.fault_turn:
            self._start(self._fail(user_start + seconds(options.fault_after_ms / 1000)))
        if options.backchannel_ms is not None:
            word = self._voice[: seconds(0.45)]
            self._start(self._speak(user_start + seconds(options.backchannel_ms / 1000), word, "backchannel"))
        if options.latency_ms is not None:
            at = user_end + seconds(options.latency_ms / 1000)
            self._start(self._speak(at, self._voice, options.text))
            if options.flush_after_ms is not None:
                self._start(self._flush(at + seconds(options.flush_after_ms / 1000)))

    async def _speak(self, at_sample: int, pcm: Pcm, text: str) -> None:
        """Be heard from `at_sample` on exactly: emit the audio when that sample is due."""
        context, turn = self._context, self._turn
        await context.clock.sleep_until_ns(samples_to_ns(at_sample))
        context.emit(StageMark(context.clock.now_ns(), self._frame, "answer"))
        if turn:
            context.emit(Heard(context.clock.now_ns(), self._frame, f"turn {turn}", True))
        context.emit(TextOut(context.clock.now_ns(), self._frame, text))
        context.emit(AudioOut(samples_to_ns(at_sample), self._frame, pcm))

    async def _flush(self, at_sample: int) -> None:
        await self._context.clock.sleep_until_ns(samples_to_ns(at_sample))
        self._context.emit(OutputFlushed(samples_to_ns(at_sample), self._frame))

    async def _fail(self, at_sample: int) -> None:
        context = self._context
        await context.clock.sleep_until_ns(samples_to_ns(at_sample))
        now_ns = context.clock.now_ns()
        if self._options.fault == "close":
            context.emit(Closed(now_ns, self._frame))
        elif self._options.fault == "stall":
            self._stalled.set()
        else:
            self._error = SystemFault("failed as scripted", kind="scripted")
            context.emit(Fault(now_ns, self._frame, "system", "scripted", "failed as scripted"))

    def _start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def aclose(self) -> None:
        for task in list(self._tasks):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


class ScriptedSystem(System):
    capabilities = Capabilities(full_duplex=True, knows_idle=True, emits_text=True, max_sessions=1024)

    def __init__(self, options: ScriptedOptions) -> None:
        self.options = options
        self._voice: Pcm | None = None

    async def start(self) -> None:
        if self.options.audio is not None:
            voice = read_mono(self.options.audio)
        else:
            with as_file(files("kamebench.systems") / "scripted.flac") as path:
                voice = read_mono(path)
        if self.options.answer_s is not None:
            wanted = seconds(self.options.answer_s)
            voice = np.tile(voice, -(-wanted // len(voice)))[:wanted]
        self._voice = voice

    def session(self, context: SessionContext) -> Session:
        if self._voice is None:
            raise SystemFault("the scripted system was not started", kind="not_started")
        return ScriptedSession(context, self.options, self._voice)


def create(setup: Setup) -> System:
    return ScriptedSystem(read_options(ScriptedOptions, setup.options))

"""One conversation with any system, driven frame by frame, and what every adapter must keep to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from kamebench.audio import FRAME_NS, FRAME_SAMPLES, Frame, Pcm, read_mono
from kamebench.clock import Activity, Pace, StreamClock
from kamebench.events import AudioOut, Event
from kamebench.llm.base import TurnContext
from kamebench.systems.base import Session, SessionContext, System

VOICE = Path(__file__).parents[2] / "kamebench" / "systems" / "scripted.flac"


@dataclass(frozen=True)
class Case:
    """An adapter under the suite.

    open: a started system, closed at the end. break_it: makes the next conversation fail; None where the
    adapter offers no way. answers: whether the case speaks when it was spoken to.
    """

    name: str
    open: Callable[[Path], AbstractAsyncContextManager[System]]
    break_it: Callable[[System], Awaitable[None]] | None = None
    answers: bool = True
    settle_s: float = 5.0


@dataclass
class Conversation:
    """A session with a context of its own; `say` plays speech, `wait` plays silence."""

    system: System
    folder: Path
    pace: Pace
    events: list[Event] = field(default_factory=list)
    index: int = 0

    def __post_init__(self) -> None:
        self.clock = StreamClock()
        self.context = SessionContext(
            self.clock, Activity(self.clock), self.events.append, self.pace, 7, self.folder
        )
        self.session: Session = self.system.session(self.context)

    async def play(self, pcm: Pcm) -> None:
        for at in range(0, len(pcm) - FRAME_SAMPLES + 1, FRAME_SAMPLES):
            activity = None if self.pace == "realtime" else self.context.activity
            await self.clock.advance_to_ns(self.index * FRAME_NS, activity)
            await self.session.send(Frame(self.index, pcm[at : at + FRAME_SAMPLES]))
            if self.pace == "lockstep":
                await self.session.processed()
            self.index += 1

    async def say(self) -> None:
        """One turn of speech."""
        voice = read_mono(VOICE)
        start = self.index * FRAME_SAMPLES
        self.context.turn = TurnContext("contract", "q", "stem", 1, ("It is four.",))
        self.context.user_span = (start, start + len(voice))
        await self.play(voice)

    async def wait(self, frames: int) -> None:
        await self.play(np.zeros(frames * FRAME_SAMPLES, np.float32))

    async def until_audio(self, limit_s: float) -> None:
        """Silence until the system has said something, or the limit in stream seconds."""
        for _ in range(round(limit_s * 12.5)):
            if any(isinstance(event, AudioOut) and np.abs(event.pcm).max() > 0 for event in self.events):
                return
            await self.wait(1)

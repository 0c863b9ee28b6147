"""What a system under test must offer. To add one, see CONTRIBUTING.md; `scripted.py` is the template."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from kamebench.audio import Frame
from kamebench.clock import Activity, Pace, StreamClock
from kamebench.events import Event
from kamebench.llm.base import TurnContext


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a system can do.

    full_duplex: listens while it speaks. frame_synchronous: one output frame for each input frame (may run in
    `lockstep`). knows_idle: reports everything it has in flight through `SessionContext.activity` (may run in
    `virtual`). max_sessions: conversations side by side.
    """

    full_duplex: bool = False
    frame_synchronous: bool = False
    knows_idle: bool = False
    emits_text: bool = False
    accepts_oracle: bool = False
    max_sessions: int = 1
    idle_prompt_s: float | None = None

    def paces(self) -> tuple[Pace, ...]:
        found: list[Pace] = ["realtime"]
        if self.knows_idle:
            found.append("virtual")
            if self.frame_synchronous:
                found.append("lockstep")
        return tuple(found)


@dataclass(slots=True)
class SessionContext:
    """What the session runner gives a system for one conversation.

    emit: takes every event, at once and in order; stamp events with `clock.now_ns()`.
    folder: where the session's extra logs go (kept with the run).
    turn: the turn being played, None before the first; the session runner changes it.
    user_span: stream samples [start, end) of the user's speech in that turn, known before it is played. Only
        `scripted` may look: it is the system whose answer is known.
    """

    clock: StreamClock
    activity: Activity
    emit: Callable[[Event], None]
    pace: Pace
    seed: int
    folder: Path
    turn: TurnContext | None = None
    user_span: tuple[int, int] | None = None


class Session(ABC):
    """One conversation. `async with system.session(context) as session`.

    A failure is reported once as an event `Fault` and then as an exception `WorldFault` from the next call.
    """

    async def __aenter__(self) -> Session:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    @abstractmethod
    async def send(self, frame: Frame) -> None:
        """Take the next frame of the user's audio. Frames come in order, none is left out.

        Returns as soon as the frame is accepted; must not wait for an answer.
        """

    async def processed(self) -> None:
        """Wait until every frame sent has been computed. Called after each frame in `lockstep`."""

    @abstractmethod
    async def aclose(self) -> None:
        """End the conversation and leave no task, thread or state behind. May be called twice."""


class System(ABC):
    """A system under test, loaded once and asked for sessions."""

    capabilities: Capabilities

    async def start(self) -> None:
        """Load weights, start servers, warm up: nothing of it is measured."""

    @abstractmethod
    def session(self, context: SessionContext) -> Session:
        """A new conversation that remembers nothing of earlier ones."""

    def describe(self) -> dict[str, Any]:
        """Versions, settings and hashes for the manifest; no keys."""
        return {}

    def usage(self) -> dict[str, Any]:
        """Requests, tokens and the like since `start`, by provider."""
        return {}

    async def aclose(self) -> None:
        """Free everything."""

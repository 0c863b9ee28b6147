"""Plays a conversation to a system and records it. Measures nothing.

The user's frames go out on an absolute schedule; what the system says is placed on the stream clock by the
playout model; both tracks and all events go to disk as they come.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from io import TextIOWrapper
from pathlib import Path

import numpy as np

from kamebench import events as ev
from kamebench import store
from kamebench.audio import (
    FRAME_NS,
    FRAME_SAMPLES,
    Frame,
    Pcm,
    TwoTrackWriter,
    frames_of,
    samples_to_ns,
    seconds,
)
from kamebench.clock import NS_PER_MS, Activity, Clock, Pace, StreamClock
from kamebench.errors import WorldFault
from kamebench.llm.base import TurnContext
from kamebench.playout import Playout
from kamebench.records import EndReason, FaultInfo, Pacing, SpokenTurn, TurnMark
from kamebench.store import AUDIO, EVENTS, PACING
from kamebench.systems.base import Session, SessionContext, System
from kamebench.vad.base import StreamingDetector

SILENCE: Pcm = np.zeros(FRAME_SAMPLES, np.float32)


@dataclass(frozen=True, slots=True)
class TurnInput:
    """One user turn to be played: float32 [n] at 24 000 Hz and what is known about it."""

    turn: int
    spoken: SpokenTurn
    pcm: Pcm
    context: TurnContext


@dataclass(frozen=True, slots=True)
class Timing:
    """The rules of a conversation, in seconds of the stream clock (docs/measuring.md says why)."""

    lead_in_s: float = 1.0
    quiet_before_s: float = 2.0
    wait_limit_s: float = 10.0
    quiet_after_s: float = 2.0
    window_s: float = 15.0
    limit_s: float = 60.0
    backchannel_s: float = 1.0
    stall_s: float = 30.0  # real seconds a system may take to accept a frame


@dataclass(frozen=True, slots=True)
class Playing:
    """How a conversation is played. `clock` None: the machine's monotonic clock."""

    pace: Pace = "realtime"
    seed: int = 0
    timing: Timing = field(default_factory=Timing)
    clock: Clock | None = None


@dataclass(slots=True)
class Recorded:
    """What came out of one conversation; audio, events and pacing are files of its folder."""

    marks: list[TurnMark] = field(default_factory=list)
    fault: FaultInfo | None = None
    late_ms: list[float] = field(default_factory=list)  # of every frame, against its schedule
    n_samples: int = 0
    clipped_samples: int = 0


class Recorder:
    """Writes both tracks and the timeline to `folder` block by block."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._events_path = folder / EVENTS
        self._audio = TwoTrackWriter(folder / AUDIO)
        self._lines: TextIOWrapper = self._part.open("w", encoding="utf-8")
        self._waiting: list[Pcm] = []
        self.playout = Playout()
        self.fault: ev.Fault | None = None
        self.closed = False

    @property
    def _part(self) -> Path:
        return self._events_path.with_name(EVENTS + ".part")

    def emit(self, event: ev.Event) -> None:
        """Take an event: at once, in order."""
        if isinstance(event, ev.AudioOut):
            self.playout.add(event)
        elif isinstance(event, ev.OutputFlushed):
            self.playout.flush(event.t_ns)
        elif isinstance(event, ev.Fault):
            self.fault = self.fault or event
        elif isinstance(event, ev.Closed):
            self.closed = True
        self._lines.write(json.dumps(ev.to_json(event)) + "\n")

    def frame(self, frame: Frame) -> Pcm | None:
        """Take the user's next frame; returns the system's frame that has just been heard, if any.

        When frame k goes out all that was heard before sample 1920*k is settled, so block k-1 is written.
        """
        self._waiting.append(frame.pcm)
        return self._write_next() if len(self._waiting) > 1 else None

    def _write_next(self) -> Pcm:
        user, start = self._waiting.pop(0), self._audio.n_samples
        system = self.playout.take(start, start + FRAME_SAMPLES)
        self._audio.write(user, system)
        return system

    def finish(self) -> tuple[int, int]:
        """Write what is left; the files take their names. Returns samples written and samples clipped."""
        while self._waiting:
            self._write_next()
        self._audio.__exit__(None, None, None)
        self._lines.close()
        self._part.replace(self._events_path)
        return self._audio.n_samples, self._audio.clipped_samples

    def abandon(self) -> None:
        """Close without giving the files their names."""
        self._audio.__exit__(RuntimeError, None, None)
        self._lines.close()


class Player:
    """Plays one conversation."""

    def __init__(
        self,
        recorder: Recorder,
        context: SessionContext,
        detector: StreamingDetector,
        timing: Timing,
        result: Recorded,
    ) -> None:
        self._recorder, self._context, self._detector, self._timing = recorder, context, detector, timing
        self._session: Session | None = None
        self._next = 0
        self._spoke_from: int | None = None  # first sample of speech since the user's turn began
        self._spoke_until = 0  # one past the last sample of speech heard
        self._result = result

    @property
    def _now(self) -> int:
        """Samples played so far."""
        return self._next * FRAME_SAMPLES

    async def play(self, session: Session, turns: Sequence[TurnInput]) -> None:
        """Play all turns in one session; each finished turn adds its mark to the result.

        Raises:
            WorldFault: the system or a service failed; earlier marks stand.
        """
        self._session = session
        await self._silence(seconds(self._timing.lead_in_s))
        for turn in turns:
            waited = await self._wait_until_quiet()
            self._result.marks.append(await self._turn(turn, waited))

    async def _beat(self, pcm: Pcm) -> None:
        """Send one frame when it is due, and look at what was heard meanwhile."""
        assert self._session is not None
        due_ns = self._next * FRAME_NS
        clock, pace = self._context.clock, self._context.pace
        await clock.advance_to_ns(due_ns, None if pace == "realtime" else self._context.activity)
        self._result.late_ms.append((clock.now_ns() - due_ns) / NS_PER_MS)
        frame = Frame(self._next, pcm)
        heard = self._recorder.frame(frame)
        self._check()
        await self._hand_over(self._session, frame)
        if heard is not None and self._detector.is_speech(heard):
            end = self._next * FRAME_SAMPLES
            if self._spoke_from is None:
                self._spoke_from = end - FRAME_SAMPLES
            self._spoke_until = end
        self._next += 1

    async def _hand_over(self, session: Session, frame: Frame) -> None:
        limit_s = self._timing.stall_s
        try:
            async with asyncio.timeout(limit_s):
                await session.send(frame)
                if self._context.pace == "lockstep":
                    await session.processed()
        except TimeoutError:
            raise WorldFault(
                f"the system did not accept frame {frame.index} within {limit_s:g} s",
                kind="stall",
                party="system",
            ) from None

    def _check(self) -> None:
        fault = self._recorder.fault
        if fault is not None:
            raise WorldFault(fault.message, kind=fault.fault, retryable=fault.retryable, party=fault.party)
        if self._recorder.closed:
            raise WorldFault("the system ended the session early", kind="closed", party="system")

    async def _silence(self, samples: int) -> None:
        for _ in range(-(-samples // FRAME_SAMPLES)):
            await self._beat(SILENCE)

    async def _wait_until_quiet(self) -> float:
        began, timing = self._now, self._timing
        while self._now - self._spoke_until < seconds(timing.quiet_before_s) or self._speaking_later():
            if self._now - began >= seconds(timing.wait_limit_s):
                break
            await self._beat(SILENCE)
        return (self._now - began) / seconds(1)

    def _speaking_later(self) -> bool:
        """Whether audio is queued that has not been heard yet."""
        return self._recorder.playout.end_sample > self._now

    async def _turn(self, turn: TurnInput, waited_s: float) -> TurnMark:
        start = self._now
        user_start = start + turn.spoken.speech_start_sample
        user_end = start + turn.spoken.speech_end_sample
        window_end = user_end + seconds(self._timing.window_s)
        context = self._context
        context.turn, context.user_span = turn.context, (user_start, user_end)
        self._spoke_from, first_frame = None, self._next
        self._mark(ev.TurnStart(samples_to_ns(start), self._next - 1, turn.turn))
        for frame in frames_of(turn.pcm):
            await self._beat(frame.pcm)
        reason = self._ended(user_end, window_end)
        while reason is None:
            await self._beat(SILENCE)
            reason = self._ended(user_end, window_end)
        self._mark(ev.TurnEnd(context.clock.now_ns(), self._next - 1, turn.turn, reason))
        late = np.asarray(self._result.late_ms[first_frame:])
        return TurnMark(
            turn=turn.turn,
            spoken=turn.spoken,
            start_sample=start,
            user_start_sample=user_start,
            user_end_sample=user_end,
            window_end_sample=window_end,
            end_sample=self._now,
            end_reason=reason,
            waited_s=waited_s,
            pacing=Pacing(
                p50_ms=float(np.median(late)), p99_ms=float(np.quantile(late, 0.99)), max_ms=float(late.max())
            ),
        )

    def _ended(self, user_end: int, window_end: int) -> EndReason | None:
        """Why the turn is over, or None while it is not."""
        now, timing = self._now, self._timing
        if now >= user_end + seconds(timing.limit_s):
            return "limit"
        spoke_from, spoke_until = self._spoke_from, self._spoke_until
        answered = spoke_from is not None and (
            spoke_until > user_end or spoke_until - spoke_from >= seconds(timing.backchannel_s)
        )
        quiet = now - max(user_end, spoke_until) >= seconds(timing.quiet_after_s)
        if not quiet or self._speaking_later():
            return None
        if answered:
            return "quiet" if self._context.activity.idle else None
        return "no_response" if now >= window_end else None

    def _mark(self, event: ev.Event) -> None:
        self._recorder.emit(event)


async def record(
    system: System,
    turns: Sequence[TurnInput],
    folder: Path,
    detector: StreamingDetector,
    how: Playing | None = None,
) -> Recorded:
    """Play `turns` to a new session of `system`, recording into `folder`.

    A failure of the system or of a service ends the session; what was recorded until then is kept, and the
    fault says which turn it spoilt. Any other exception leaves no finished file behind.
    """
    how = how or Playing()
    recorder, result = Recorder(folder), Recorded()
    clock = StreamClock(how.clock)
    context = SessionContext(clock, Activity(clock), recorder.emit, how.pace, how.seed, folder)
    player = Player(recorder, context, detector, how.timing, result)
    try:
        try:
            async with system.session(context) as session:
                await player.play(session, turns)
        except WorldFault as error:
            result.fault = FaultInfo(
                party=error.party,
                kind=error.kind,
                message=str(error),
                retryable=error.retryable,
                turn=len(result.marks) + 1,
            )
        store.write_text(folder / PACING, json.dumps([round(ms, 3) for ms in result.late_ms]))
        result.n_samples, result.clipped_samples = recorder.finish()
    except BaseException:
        with suppress(OSError):
            recorder.abandon()
        raise
    return result

"""Time, passed in. One stream clock a session; tests put a virtual clock under it.

The stream clock is nanoseconds since the session's start. How it runs is the pace of the run:

- `realtime`: with the monotonic clock.
- `virtual`: with the monotonic clock while an operation is in flight; idle waits are skipped.
- `lockstep`: as `virtual`, and stopped while the model under test computes a step.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import time
from collections.abc import Coroutine, Generator, Sized
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar

Pace = Literal["realtime", "virtual", "lockstep"]
T = TypeVar("T")

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000


class Clock(Protocol):
    """What waits and tells time, in nanoseconds since an origin of its own."""

    def now_ns(self) -> int: ...

    async def sleep_until_ns(self, t_ns: int) -> None: ...


class MonotonicClock:
    """The machine's monotonic clock, from zero at its creation."""

    # The event loop's timers are a few milliseconds coarse under load: sleep short, then yield until due.
    _FINE_NS = 1 * NS_PER_MS

    def __init__(self) -> None:
        self._origin = time.perf_counter_ns()

    def now_ns(self) -> int:
        return time.perf_counter_ns() - self._origin

    async def sleep_until_ns(self, t_ns: int) -> None:
        while (left := t_ns - self.now_ns()) > self._FINE_NS:
            await asyncio.sleep((left - self._FINE_NS) / NS_PER_S)
        while self.now_ns() < t_ns:
            await asyncio.sleep(0)


class VirtualClock:
    """A clock for tests: time passes only when every task waits for it.

    Drive it with `await clock.run(coroutine)`. Work in real threads is waited for, in no virtual time.
    """

    def __init__(self) -> None:
        self._now = 0
        self._order = itertools.count()
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []

    def now_ns(self) -> int:
        return self._now

    async def sleep_until_ns(self, t_ns: int) -> None:
        if t_ns <= self._now:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (t_ns, next(self._order), future))
        await future

    async def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end, letting time jump to the next sleeper whenever all are asleep."""
        task = asyncio.ensure_future(coroutine)
        try:
            while not task.done():
                await _all_asleep()
                while self._waiting and self._waiting[0][2].done():
                    heapq.heappop(self._waiting)
                if task.done():
                    break
                if self._waiting:
                    t_ns, _, future = heapq.heappop(self._waiting)
                    self._now = max(self._now, t_ns)
                    future.set_result(None)
                else:
                    await asyncio.wait({task}, timeout=0.005)
            return task.result()
        finally:
            task.cancel()


async def _all_asleep() -> None:
    """Wait until no other task can run at once; counting rounds instead would race with busy ones."""
    ready: Sized = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]  # has no public name
    await asyncio.sleep(0)
    while len(ready):
        await asyncio.sleep(0)


class StreamClock:
    """The stream clock of one session: a base clock plus what was skipped, less what was not charged."""

    def __init__(self, base: Clock | None = None) -> None:
        self._base = base or MonotonicClock()
        self._origin = self._base.now_ns()
        self._skipped = 0
        self._stopped_at: int | None = None
        self._stops = 0
        self._moved = asyncio.Event()
        self._deadlines: list[int] = []

    def elapsed_ns(self) -> int:
        """Monotonic nanoseconds since the session's start: nothing skipped, nothing left out."""
        return self._base.now_ns() - self._origin

    def now_ns(self) -> int:
        """Stream nanoseconds since the session's start."""
        raw = self.elapsed_ns() if self._stopped_at is None else self._stopped_at
        return raw + self._skipped

    def skip_to(self, t_ns: int) -> None:
        """Jump forward, though not past the next sleeper's time; no effect when `t_ns` has passed."""
        ahead = min([t_ns, *self._deadlines]) - self.now_ns()
        if ahead > 0:
            self._skipped += ahead
            self._wake()

    @contextmanager
    def stopped(self) -> Generator[None]:
        """Stop stream time for the block's duration (lockstep: the model's own compute is not charged)."""
        if self._stops == 0:
            self._stopped_at = self.elapsed_ns()
        self._stops += 1
        try:
            yield
        finally:
            self._stops -= 1
            if self._stops == 0 and self._stopped_at is not None:
                self._skipped -= self.elapsed_ns() - self._stopped_at
                self._stopped_at = None
                self._wake()

    async def sleep_until_ns(self, t_ns: int) -> None:
        self._deadlines.append(t_ns)
        try:
            while (ahead := t_ns - self.now_ns()) > 0:
                waits: set[asyncio.Future[Any]] = {asyncio.ensure_future(self._moved.wait())}
                if self._stopped_at is None:
                    waits.add(asyncio.ensure_future(self._base.sleep_until_ns(self._base.now_ns() + ahead)))
                await first_of(waits)
        finally:
            self._deadlines.remove(t_ns)

    async def advance_to_ns(self, t_ns: int, activity: Activity | None) -> None:
        """Wait until `t_ns`; where `activity` is given, skip the wait as soon as it is idle."""
        if activity is None:
            await self._base.sleep_until_ns(self._base.now_ns() + t_ns - self.now_ns())
            return
        while self.now_ns() < t_ns:
            await asyncio.sleep(0)  # what has just ended may begin something else
            if activity.idle:
                self.skip_to(t_ns)
                await asyncio.sleep(0)
            else:
                idle = asyncio.ensure_future(activity.wait_idle())
                await first_of({idle, asyncio.ensure_future(self.sleep_until_ns(t_ns))})

    def _wake(self) -> None:
        self._moved.set()
        self._moved = asyncio.Event()


@dataclass(slots=True)
class Operation:
    """One thing in flight. `settle` makes its real duration count in stream time."""

    kind: str
    clock: StreamClock
    start_stream_ns: int
    start_real_ns: int

    async def settle(self) -> None:
        """Wait until as much stream time has passed since the start as real time has.

        A no-op in `realtime` and `virtual`. In `lockstep` the stream stands still while the model computes,
        and a back-end's answer must not profit from that.
        """
        due_ns = self.due_ns()
        if self.clock.now_ns() < due_ns:
            await self.clock.sleep_until_ns(due_ns)

    def due_ns(self) -> int:
        """Stream time at which what has just come counts as arrived: start plus the real time since.

        For several results of one operation: note it as each comes, wait for it before it is used.
        """
        return self.start_stream_ns + self.clock.elapsed_ns() - self.start_real_ns


@dataclass(slots=True)
class Activity:
    """What a system has in flight, so that a virtual pace knows when waiting is empty.

    Open the operation before handing work to a task or a thread: between the hand-over and the task's first
    step the session would otherwise look idle.
    """

    clock: StreamClock
    _count: int = 0
    _idle: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._idle.set()

    @property
    def idle(self) -> bool:
        return self._count == 0

    async def wait_idle(self) -> None:
        await self._idle.wait()

    def begin(self, kind: str) -> Operation:
        self._count += 1
        self._idle.clear()
        return Operation(kind, self.clock, self.clock.now_ns(), self.clock.elapsed_ns())

    def end(self, operation: Operation) -> None:
        del operation
        self._count -= 1
        if self._count == 0:
            self._idle.set()

    @contextmanager
    def operation(self, kind: str) -> Generator[Operation]:
        operation = self.begin(kind)
        try:
            yield operation
        finally:
            self.end(operation)


async def first_of(waits: set[asyncio.Future[Any]]) -> None:
    """Wait for the first of several futures and cancel the others, leaving none behind."""
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for future in waits:
            future.cancel()
        for future in waits:
            with suppress(asyncio.CancelledError):
                await future

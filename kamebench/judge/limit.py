"""How many requests may be in flight: halved when the provider says too many, then slowly raised again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from kamebench.clock import NS_PER_S, Clock, MonotonicClock

OnWait = Callable[[float, str], None]
"""Told how many seconds are waited, and why."""


class AdaptiveLimit:
    """Additive increase, multiplicative decrease (as TCP: Chiu and Jain 1989) on requests in flight.

    Args:
        most: requests side by side when nothing is refused.
        clock: for the pause after a refusal.
        on_wait: told of every such pause, once for all requests that it holds up.
    """

    def __init__(self, most: int = 4, clock: Clock | None = None, on_wait: OnWait | None = None) -> None:
        self.most = most
        self.allowed = float(most)
        self.in_flight = 0
        self.on_wait = on_wait
        self._clock = clock or MonotonicClock()
        self._open_at_ns = 0
        self._freed = asyncio.Condition()

    @asynccontextmanager
    async def slot(self) -> AsyncGenerator[None]:
        """A place among the requests in flight; waits for one, and for the end of a pause."""
        async with self._freed:
            await self._freed.wait_for(lambda: self.in_flight < int(self.allowed))
            self.in_flight += 1
        try:
            while self._clock.now_ns() < self._open_at_ns:
                await self._clock.sleep_until_ns(self._open_at_ns)
            yield
        finally:
            async with self._freed:
                self.in_flight -= 1
                self._freed.notify_all()

    async def succeeded(self) -> None:
        """A request went through: one more place after about as many successes as there are places."""
        async with self._freed:
            self.allowed = min(self.most, self.allowed + 1 / self.allowed)
            self._freed.notify_all()

    def refused(self, pause_s: float) -> None:
        """The provider asked for fewer requests. Those refused together count as one sign."""
        now = self._clock.now_ns()
        if now >= self._open_at_ns:
            self.allowed = max(1.0, self.allowed / 2)
            if self.on_wait is not None:
                self.on_wait(pause_s, "the provider's rate limit")
        self._open_at_ns = max(self._open_at_ns, now + round(pause_s * NS_PER_S))

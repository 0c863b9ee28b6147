"""Asking a language model outside of any timed session: side by side within a limit, again within bounds."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kamebench.clock import NS_PER_S, Clock, MonotonicClock
from kamebench.errors import BackendFault, WorldFault
from kamebench.judge.limit import AdaptiveLimit
from kamebench.llm.base import Backend, ChatRequest, Completion

RATE_LIMITED = ("rate_limit", "overloaded")
HOPELESS = ("auth", "not_found", "quota")
"""Kinds of faults after which the next question would fail alike."""

OpenBackend = Callable[[], Backend]


@dataclass(frozen=True, slots=True)
class Retries:
    """Bounds on asking again after a fault that may pass, for one request."""

    attempts: int = 6
    max_s: float = 300.0
    first_pause_s: float = 1.0

    def pause_s(self, failed: int, error: WorldFault) -> float:
        """The provider's own word where it gave one, else doubled each time, with jitter."""
        if isinstance(error, BackendFault) and error.retry_after_s is not None:
            return error.retry_after_s
        return self.first_pause_s * 2 ** (failed - 1) * random.uniform(0.75, 1.25)  # noqa: S311


class Asker:
    """One model, opened when it is first asked.

    Args:
        open_backend: makes the back-end.
        limit: on requests in flight; shared by all that ask the same provider.
    """

    def __init__(
        self,
        open_backend: OpenBackend,
        limit: AdaptiveLimit | None = None,
        *,
        clock: Clock | None = None,
        retries: Retries | None = None,
    ) -> None:
        self._open_backend = open_backend
        self._clock = clock or MonotonicClock()
        self.limit = limit or AdaptiveLimit(clock=self._clock)
        self._retries = retries or Retries()
        self._backend: Backend | None = None
        self._opening = asyncio.Lock()
        self._hopeless: WorldFault | None = None
        self.requests = 0
        self._usage: dict[str, Any] = {}

    async def complete(self, request: ChatRequest) -> Completion:
        """One answer.

        Raises:
            WorldFault: the last fault, when it cannot pass or the bounds are reached. After a fault that
                concerns every request (a refused key) all later ones fail with it, unasked.
            UserError: the back-end cannot be opened, or its limit of cost is reached.
        """
        began_ns, failed = self._clock.now_ns(), 0
        while True:
            if self._hopeless is not None:
                raise self._hopeless
            try:
                async with self.limit.slot():
                    completion = await self._request(request)
                await self.limit.succeeded()
                return completion
            except WorldFault as error:
                failed += 1
                pause_s = self._retries.pause_s(failed, error)
                spent_s = (self._clock.now_ns() - began_ns) / NS_PER_S
                if error.kind in HOPELESS:
                    self._hopeless = error
                if not error.retryable or failed >= self._retries.attempts:
                    raise
                if spent_s + pause_s > self._retries.max_s:
                    raise
                if error.kind in RATE_LIMITED:
                    self.limit.refused(pause_s)
                else:
                    await self._clock.sleep_until_ns(self._clock.now_ns() + round(pause_s * NS_PER_S))

    async def _request(self, request: ChatRequest) -> Completion:
        if self._hopeless is not None:  # it failed while this one waited for its place
            raise self._hopeless
        backend = await self._opened()
        self.requests += 1
        return await backend.complete(request)

    async def _opened(self) -> Backend:
        async with self._opening:
            if self._backend is None:
                backend = self._open_backend()
                await backend.start()
                self._backend = backend
            return self._backend

    def usage(self) -> dict[str, Any]:
        """What the back-end counted: requests, tokens and cost by 'family:model'."""
        return self._usage if self._backend is None else self._backend.usage()

    async def aclose(self) -> None:
        """Release the back-end. May be called twice."""
        backend, self._backend = self._backend, None
        if backend is not None:
            self._usage = backend.usage()
            await backend.aclose()

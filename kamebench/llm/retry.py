"""Asking again, for what is not timed: a judge, an ablation. Never within a session."""

from __future__ import annotations

import time

import stamina

from kamebench.errors import BackendFault
from kamebench.llm.base import Backend, ChatRequest, Completion


async def complete_with_retries(
    backend: Backend,
    request: ChatRequest,
    *,
    attempts: int = 5,
    max_seconds: float = 120.0,
    wait_s: float = 0.5,
) -> Completion:
    """The whole answer, asked for again while that makes sense.

    Waits what the provider asks for (Retry-After), else `wait_s` doubled each time, with jitter.

    Args:
        attempts: requests in all, at least 1.
        max_seconds: no new request is begun that would wait past this many seconds from the first.

    Raises:
        BackendFault: the last one; at once where asking again makes no sense or would take too long.
    """
    deadline = time.monotonic() + max_seconds

    def again(error: Exception) -> bool | float:
        if not isinstance(error, BackendFault) or not error.retryable:
            return False
        if error.retry_after_s is None:
            return True
        return error.retry_after_s if time.monotonic() + error.retry_after_s < deadline else False

    async for attempt in stamina.retry_context(
        on=again,
        attempts=attempts,
        timeout=max_seconds,
        wait_initial=wait_s,
        wait_max=30.0,
        wait_jitter=wait_s,
    ):
        with attempt:
            return await backend.complete(request)
    raise AssertionError("stamina raises the last fault itself")

"""Blocking generators, such as a synthesiser's, consumed by the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TypeVar

T = TypeVar("T")


async def iterate_in_thread(make: Callable[[], Iterator[T]]) -> AsyncIterator[T]:
    """Run `make()` in a thread and yield its items as they come; exceptions come through.

    Closing the generator lets the thread stop at its next item and waits for it.
    """
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[tuple[T | None, BaseException | None, bool]] = asyncio.Queue()
    stop = threading.Event()

    def work() -> None:
        error: BaseException | None = None
        try:
            for item in make():
                if stop.is_set():
                    return
                loop.call_soon_threadsafe(queue.put_nowait, (item, None, False))
        except BaseException as caught:  # handed over to the consumer, whatever it is
            error = caught
        finally:
            loop.call_soon_threadsafe(queue.put_nowait, (None, error, True))

    thread = loop.run_in_executor(None, work)
    try:
        while True:
            item, error, last = await queue.get()
            if error is not None:
                raise error
            if last:
                return
            yield item  # type: ignore[misc]
    finally:
        stop.set()
        await asyncio.shield(thread)


async def call_in_thread(function: Callable[[], T]) -> T:
    """Run a blocking function in a thread. When cancelled, waits for it to end before it gives way,

    so that the next caller finds the model free.
    """
    future = asyncio.get_running_loop().run_in_executor(None, function)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await asyncio.wait({future})
        raise

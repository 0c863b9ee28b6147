"""Many conversations on one model: each has a slot; frames that come within one beat are stepped together.

The model belongs to one thread. A beat starts once every open slot has handed in a frame, or `gather_s` after
the first one did: a slow conversation delays the others by that much at most, and whoever misses a beat is
stepped in the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from kamebench.audio import FRAME_SAMPLES, Pcm
from kamebench.errors import SystemFault
from kamebench.runtime.batch import Beat, Output, Request
from kamebench.runtime.oracle_stream import OracleStream

GATHER_S = 0.005  # 1/16 of a frame: enough for sessions that share a schedule, too little to be heard


class Update(Protocol):
    """Something to be done to the oracle between two steps: a reset first, then tokens."""

    @property
    def reset(self) -> bool: ...

    @property
    def tokens(self) -> Sequence[int]: ...


@dataclass(frozen=True, slots=True)
class Stepped:
    """What one step gave: audio float32 [1920] and a text token (None while the model's delay lasts), and
    the oracle token it consumed."""

    pcm: Pcm | None
    text_token: int | None
    oracle_token: int


@dataclass(slots=True)
class _Waiting:
    request: Request
    done: asyncio.Future[Output]


class Engine:
    """The slots of a batch. Used from one event loop; `close` from anywhere once its slots are closed."""

    def __init__(self, batch: Beat, pad_id: int, initial_id: int, gather_s: float = GATHER_S) -> None:
        self._batch, self._gather_s = batch, gather_s
        self.pad_id, self.initial_id = pad_id, initial_id
        self._free = list(range(batch.rows))
        self._waiting: dict[int, _Waiting] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._running: asyncio.Future[list[Output]] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="model")
        self._closed = False

    def open(self, seed: int) -> Slot:
        """A slot that remembers nothing of earlier conversations.

        Raises:
            SystemFault: all are taken.
        """
        if self._closed:
            raise SystemFault("the model was closed", kind="closed")
        if not self._free:
            raise SystemFault(
                f"the model holds {self._batch.rows} conversations side by side and all are taken",
                kind="busy",
                retryable=True,
            )
        return Slot(self, self._free.pop(0), seed)

    async def submit(self, request: Request) -> Output:
        """Have a request stepped with whatever else comes within the beat.

        When cancelled before its beat began, the request is withdrawn; after, the beat is waited for.
        """
        if self._closed:
            raise SystemFault("the model was closed", kind="closed")
        done: asyncio.Future[Output] = asyncio.get_running_loop().create_future()
        self._waiting[request.row] = _Waiting(request, done)
        self._consider()
        try:
            return await done
        except asyncio.CancelledError:
            if self._waiting.pop(request.row, None) is not None:
                self._consider()
            elif self._running is not None:
                await asyncio.wait({self._running})
            raise

    def release(self, row: int) -> None:
        self._free.append(row)
        self._consider()

    def _consider(self) -> None:
        """Start a beat if one is due, or see to it that it will be."""
        if self._running is not None or not self._waiting:
            return
        if len(self._waiting) == self._batch.rows - len(self._free):
            self._run()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._gather_s, self._run)

    def _run(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._running is not None or not self._waiting:
            return
        beat, self._waiting = list(self._waiting.values()), {}
        requests = [one.request for one in beat]
        loop = asyncio.get_running_loop()
        self._running = loop.run_in_executor(self._thread, self._batch.step, requests)
        self._running.add_done_callback(lambda running: self._deliver(beat, running))

    def _deliver(self, beat: list[_Waiting], running: asyncio.Future[list[Output]]) -> None:
        self._running = None
        error = SystemFault("the model was closed", kind="closed") if running.cancelled() else None
        caught = None if running.cancelled() else running.exception()
        if caught is not None:
            error = SystemFault(f"the model failed: {type(caught).__name__}: {caught}", kind="crash")
            error.__cause__ = caught
        for at, one in enumerate(beat):
            if one.done.done():
                continue  # its conversation gave up
            if error is not None:
                one.done.set_exception(error)
            else:
                one.done.set_result(running.result()[at])
        self._consider()

    def call(self, function: Callable[[], None]) -> None:
        """Run something on the model's thread and wait for it; not while conversations are open."""
        self._thread.submit(function).result()

    def close(self) -> None:
        """End the thread, after the beat it is at, and free the batch."""
        if not self._closed:
            self._closed = True
            self._thread.shutdown()
            self._batch.close()


class Slot:
    """One conversation's place in the batch: its oracle stream and its seed.

    A step at a time: the next may be asked for when the one before has returned.
    """

    def __init__(self, engine: Engine, row: int, seed: int) -> None:
        self._engine, self._row, self._seed = engine, row, seed
        self._oracle = OracleStream(engine.pad_id, engine.initial_id)
        self._steps = 0
        self._open = True

    async def step(self, pcm: Pcm, updates: Sequence[Update] = ()) -> Stepped:
        """Apply the updates, then take the user's next frame, float32 [1920] in [-1, 1].

        Raises:
            SystemFault: the slot was closed, the frame has another shape, or the model failed.
        """
        if not self._open:
            raise SystemFault("the conversation was closed", kind="closed")
        if pcm.shape != (FRAME_SAMPLES,):
            raise SystemFault(
                f"a frame has shape {list(pcm.shape)}; expected [{FRAME_SAMPLES}]", kind="bad_frame"
            )
        for update in updates:
            if update.reset:
                self._oracle.reset(self._steps)
            if update.tokens:
                self._oracle.append(self._steps, update.tokens)
        token = self._oracle.at(self._steps)
        seed = None if self._steps else self._seed
        output = await self._engine.submit(Request(self._row, pcm.astype(np.float32), token, seed))
        self._steps += 1
        return Stepped(output.pcm, output.text_token, token)

    def reset(self, seed: int | None = None) -> None:
        """Begin anew: the next step is the first of another conversation, with no oracle from this one."""
        self._seed = self._seed if seed is None else seed
        self._oracle.clear()
        self._steps = 0

    async def aclose(self) -> None:
        """Give the place back. May be called twice; the next conversation there begins cleared."""
        if self._open:
            self._open = False
            self._engine.release(self._row)

"""One KAME conversation: a frame-synchronous model, and the tandem loop that tells it what to say."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Protocol

from kamebench.audio import Frame, Pcm
from kamebench.clock import Operation
from kamebench.errors import SystemFault, WorldFault
from kamebench.events import AudioOut, Fault, TextOut
from kamebench.oracle.log import PADDING_TOKENS
from kamebench.oracle.loop import OracleUpdate, TandemLoop, Tokenizer
from kamebench.systems.base import Session, SessionContext


@dataclass(frozen=True, slots=True)
class Stepped:
    """What one step gave: audio float32 [1920] and a text token (None while the model's delay lasts), and
    the oracle token it consumed."""

    pcm: Pcm | None
    text_token: int | None
    oracle_token: int


class SpeakingModel(Protocol):
    """One conversation's place on a model."""

    async def step(self, pcm: Pcm, updates: Sequence[OracleUpdate]) -> Stepped:
        """Apply the updates, then take the user's next frame, float32 [1920]."""
        ...

    async def aclose(self) -> None:
        """Give the place back, cleared. May be called twice."""
        ...


class KameSession(Session):
    """Frames are worked off in order by one task, the only one that touches the model."""

    def __init__(
        self,
        context: SessionContext,
        open_model: Callable[[int], Awaitable[SpeakingModel]],
        open_loop: Callable[[], TandemLoop],
        tokenizer: Tokenizer,
    ) -> None:
        self._context, self._open_model, self._open_loop = context, open_model, open_loop
        self._tokenizer = tokenizer
        self._model: SpeakingModel | None = None
        self._loop: TandemLoop | None = None
        self._frames: asyncio.Queue[tuple[Frame, Operation]] = asyncio.Queue()
        self._worker: asyncio.Task[None] | None = None
        self._error: WorldFault | None = None

    async def __aenter__(self) -> Session:
        try:
            with self._context.clock.stopped():  # what opening takes makes no frame late
                self._model = await self._open_model(self._context.seed)
            self._loop = self._open_loop()
            self._loop.start()
        except WorldFault as error:
            self._fail(error, -1)
            await self.aclose()
            raise
        except BaseException:
            await self.aclose()
            raise
        return self

    async def send(self, frame: Frame) -> None:
        if self._error is not None:
            raise self._error
        if self._loop is None:
            raise SystemFault("the session was not opened", kind="not_started")
        await self._loop.send(frame)
        if self._worker is None:
            self._worker = asyncio.create_task(self._work())
        self._frames.put_nowait((frame, self._context.activity.begin("model step")))

    async def processed(self) -> None:
        await self._frames.join()

    async def _work(self) -> None:
        while True:
            frame, operation = await self._frames.get()
            try:
                await self._step(frame)
            except asyncio.CancelledError:
                raise
            except Exception as error:
                self._fail(error, frame.index)
            finally:
                self._context.activity.end(operation)
                self._frames.task_done()

    async def _step(self, frame: Frame) -> None:
        """One step; in `lockstep` the stream stands still while the model computes."""
        if self._error is not None or self._model is None or self._loop is None:
            return
        context, index = self._context, frame.index
        updates = self._loop.updates(index)
        with context.clock.stopped() if context.pace == "lockstep" else nullcontext():
            stepped = await self._model.step(frame.pcm, updates)
        self._loop.stepped(index, stepped.oracle_token, stepped.text_token)
        now_ns = context.clock.now_ns()
        token = stepped.text_token
        if token is not None and token >= 0 and token not in PADDING_TOKENS:
            context.emit(TextOut(now_ns, index, self._tokenizer.id_to_piece(token).replace("▁", " ")))
        if stepped.pcm is not None:
            context.emit(AudioOut(now_ns, index, stepped.pcm, synchronous=True))

    def _fail(self, error: Exception, frame: int) -> None:
        if not isinstance(error, WorldFault):
            error = SystemFault(f"the model failed: {type(error).__name__}: {error}", kind="crash")
        self._error = error
        now_ns = self._context.clock.now_ns()
        self._context.emit(Fault(now_ns, frame, error.party, error.kind, str(error), error.retryable))

    async def aclose(self) -> None:
        if self._worker is not None:
            self._worker.cancel()
            with suppress(asyncio.CancelledError):
                await self._worker
            self._worker = None
        while not self._frames.empty():
            self._context.activity.end(self._frames.get_nowait()[1])
            self._frames.task_done()
        if self._loop is not None:
            await self._loop.aclose()
        if self._model is not None:
            await self._model.aclose()

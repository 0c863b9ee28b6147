"""A conversation with a frame-synchronous model: one frame in, one frame out, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext, suppress
from typing import Any, Literal, Protocol

from pydantic import Field

from kamebench.audio import Frame, Pcm
from kamebench.clock import Operation
from kamebench.errors import SystemFault, WorldFault
from kamebench.events import AudioOut, Fault, TextOut
from kamebench.oracle.log import PADDING_TOKENS
from kamebench.oracle.loop import OracleUpdate
from kamebench.runtime.engine import Stepped
from kamebench.systems import Options
from kamebench.systems.base import Session, SessionContext


class ModelOptions(Options):
    """Which weights, where they run, and how tokens are drawn.

    weights: a hub repository or a folder in the public layout. device: cpu, cuda, cuda:N; None: cuda where
    there is one. Of the sampling, None: what the checkpoint says, else the `moshi` package's defaults.
    """

    weights: str
    revision: str | None = None
    dtype: Literal["bf16", "fp16", "fp32"] = "bf16"
    device: str | None = None
    greedy: bool | None = None
    voice_temperature: float | None = Field(default=None, ge=0, le=2)
    text_temperature: float | None = Field(default=None, ge=0, le=2)
    voice_top_k: int | None = Field(default=None, ge=0)
    text_top_k: int | None = Field(default=None, ge=0)

    def voice(self) -> Any:
        """The settings as `kamebench.runtime.voice` takes them."""
        from kamebench.runtime.voice import VoiceSettings

        return VoiceSettings(
            source=self.weights,
            revision=self.revision,
            dtype=self.dtype,
            device=self.device,
            greedy=self.greedy,
            temperature=self.voice_temperature,
            text_temperature=self.text_temperature,
            top_k=self.voice_top_k,
            text_top_k=self.text_top_k,
        )


class Pieces(Protocol):
    """Turns a text token into its piece of text."""

    def id_to_piece(self, token: int) -> str: ...


class SpeakingModel(Protocol):
    """One conversation's place on a model."""

    async def step(self, pcm: Pcm, updates: Sequence[OracleUpdate]) -> Stepped:
        """Apply the updates, then take the user's next frame, float32 [1920]."""
        ...

    async def aclose(self) -> None:
        """Give the place back, cleared. May be called twice."""
        ...


class ModelSession(Session):
    """Frames are worked off in order by one task, the only one that touches the model."""

    def __init__(
        self,
        context: SessionContext,
        open_model: Callable[[int], Awaitable[SpeakingModel]],
        tokenizer: Pieces,
    ) -> None:
        self._context, self._open_model, self._tokenizer = context, open_model, tokenizer
        self._model: SpeakingModel | None = None
        self._frames: asyncio.Queue[tuple[Frame, Operation]] = asyncio.Queue()
        self._worker: asyncio.Task[None] | None = None
        self._error: WorldFault | None = None

    async def _opened(self) -> None:
        """Called once the model's place is there."""

    async def _heard(self, frame: Frame) -> None:
        """Called for every frame before it is queued; must not wait."""

    def _updates(self, index: int) -> Sequence[OracleUpdate]:
        """What is to be done to the oracle before the step of frame `index`."""
        return ()

    def _stepped(self, index: int, stepped: Stepped) -> None:
        """Called after the step of frame `index`, before its events."""

    async def _closed(self) -> None:
        """Called when no step will come any more. May be called twice."""

    async def __aenter__(self) -> Session:
        try:
            with self._context.clock.stopped():  # what opening takes makes no frame late
                self._model = await self._open_model(self._context.seed)
            await self._opened()
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
        if self._model is None:
            raise SystemFault("the session was not opened", kind="not_started")
        await self._heard(frame)
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
        if self._error is not None or self._model is None:
            return
        context, index = self._context, frame.index
        updates = self._updates(index)
        with context.clock.stopped() if context.pace == "lockstep" else nullcontext():
            stepped = await self._model.step(frame.pcm, updates)
        self._stepped(index, stepped)
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
        await self._closed()
        if self._model is not None:
            await self._model.aclose()

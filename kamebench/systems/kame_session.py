"""One KAME conversation: a frame-synchronous model, and the tandem loop that tells it what to say."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from kamebench.audio import Frame
from kamebench.oracle.loop import OracleUpdate, TandemLoop, Tokenizer
from kamebench.runtime.engine import Stepped
from kamebench.systems.base import SessionContext
from kamebench.systems.model_session import ModelSession, SpeakingModel

__all__ = ["KameSession", "SpeakingModel", "Stepped"]


class KameSession(ModelSession):
    """A model session whose oracle updates come from a loop of its own."""

    def __init__(
        self,
        context: SessionContext,
        open_model: Callable[[int], Awaitable[SpeakingModel]],
        open_loop: Callable[[], TandemLoop],
        tokenizer: Tokenizer,
    ) -> None:
        super().__init__(context, open_model, tokenizer)
        self._open_loop = open_loop
        self._loop: TandemLoop | None = None

    async def _opened(self) -> None:
        self._loop = self._open_loop()
        self._loop.start()

    async def _heard(self, frame: Frame) -> None:
        assert self._loop is not None  # the model's place is there only after `_opened`
        await self._loop.send(frame)

    def _updates(self, index: int) -> Sequence[OracleUpdate]:
        assert self._loop is not None
        return self._loop.updates(index)

    def _stepped(self, index: int, stepped: Stepped) -> None:
        assert self._loop is not None
        self._loop.stepped(index, stepped.oracle_token, stepped.text_token)

    async def _closed(self) -> None:
        if self._loop is not None:
            await self._loop.aclose()

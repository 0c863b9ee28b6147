"""Moshi run here: many conversations on one model, through the unchanged `moshi` package."""

from __future__ import annotations

from typing import Any

from kamebench.errors import SystemFault
from kamebench.runtime import voice
from kamebench.runtime.checkpoint import Oracle
from kamebench.runtime.engine import Slot
from kamebench.systems import Setup, read_options
from kamebench.systems.base import Capabilities, Session, SessionContext, System
from kamebench.systems.model_session import ModelOptions, ModelSession
from kamebench.threads import call_in_thread


class MoshiOptions(ModelOptions):
    weights: str = "kyutai/moshiko-pytorch-bf16"


class Model:
    """A voice that is loaded when the system starts; Moshi and KAME share it."""

    def __init__(self, options: ModelOptions, sessions: int, oracle: Oracle) -> None:
        self._options, self._sessions = options, sessions
        self._oracle: Oracle = oracle
        self._voice: voice.Voice | None = None

    async def start(self) -> None:
        settings = self._options.voice()
        self._voice = await call_in_thread(lambda: voice.load(settings, self._sessions, self._oracle))

    @property
    def loaded(self) -> voice.Voice:
        if self._voice is None:
            raise SystemFault("the model was not loaded: start the system first", kind="not_started")
        return self._voice

    async def open(self, seed: int) -> Slot:
        return self.loaded.engine.open(seed)

    def describe(self) -> dict[str, Any]:
        found: dict[str, Any] = {**self._options.model_dump(mode="json"), "sessions": self._sessions}
        if self._voice is not None:
            found |= self._voice.describe()
        return found

    async def aclose(self) -> None:
        loaded, self._voice = self._voice, None
        if loaded is not None:
            await call_in_thread(loaded.engine.close)


class MoshiSystem(System):
    """One model for all conversations; each has a seed, a slot and no memory of another."""

    def __init__(self, options: MoshiOptions, sessions: int) -> None:
        self._model = Model(options, sessions, "none")
        self.capabilities = Capabilities(
            full_duplex=True,
            frame_synchronous=True,
            knows_idle=True,
            emits_text=True,
            max_sessions=sessions,
        )

    async def start(self) -> None:
        await self._model.start()

    def session(self, context: SessionContext) -> Session:
        return ModelSession(context, self._model.open, self._model.loaded.tokenizer)

    def describe(self) -> dict[str, Any]:
        return self._model.describe()

    async def aclose(self) -> None:
        await self._model.aclose()


def create(setup: Setup) -> System:
    return MoshiSystem(read_options(MoshiOptions, setup.options), setup.sessions)

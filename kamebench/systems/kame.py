"""KAME run here: the model with its oracle stream, a streaming recogniser and a back-end of choice."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from kamebench.asr.streaming import StreamingEngine, open_streaming
from kamebench.errors import BadConfig
from kamebench.llm.base import Backend
from kamebench.oracle.chunking import Chunking
from kamebench.oracle.log import Header, LogWriter
from kamebench.oracle.loop import LoopSettings, LoopUsage, Overflow, Surroundings, TandemLoop
from kamebench.oracle.policy import PolicySettings
from kamebench.oracle.prompt import INSTRUCTIONS
from kamebench.systems import Setup, read_options
from kamebench.systems.base import Capabilities, Session, SessionContext, System
from kamebench.systems.kame_session import KameSession
from kamebench.systems.model_session import ModelOptions
from kamebench.systems.moshi import Model
from kamebench.threads import call_in_thread


class KameOptions(ModelOptions):
    """The model, what hears the user, and how the back-end is asked; defaults as the released server.

    weights without an oracle stream (plain Moshi) get it as a copy of the text embedding. recogniser: see
    docs/oracle.md. queue: entries between back-end and model; overflow: what happens when it is full.
    on_backend_fault: 'fault' spoils the turn, 'continue' speaks on.
    """

    weights: str = "SakanaAI/kame"
    recogniser: str = "whisper:tiny.en"
    policy: str = "released"
    poll_s: float = Field(default=0.5, gt=0)
    min_new_words: int = Field(default=2, ge=1)
    max_restarts: int = Field(default=5, ge=1)
    restart_window_s: float = Field(default=2.0, gt=0)
    chunking: Chunking = "released"
    queue: int = Field(default=64, ge=2)
    overflow: Overflow = "drop-chunks"
    temperature: float = Field(default=1.0, ge=0, le=2)
    max_tokens: int | None = Field(default=None, ge=1)
    on_backend_fault: Literal["fault", "continue"] = "fault"
    instructions: str = INSTRUCTIONS

    def loop(self) -> LoopSettings:
        policy = PolicySettings(
            self.policy, self.poll_s, self.min_new_words, self.max_restarts, self.restart_window_s
        )
        policy.build()  # refuses a name that does not exist
        return LoopSettings(
            policy,
            self.chunking,
            self.queue,
            self.overflow,
            self.temperature,
            self.max_tokens,
            self.on_backend_fault,
            self.instructions,
        )


class KameSystem(System):
    """One model, one streaming recogniser and one back-end for all conversations."""

    def __init__(
        self, options: KameOptions, backend: Backend, backend_name: str | None, sessions: int = 1
    ) -> None:
        self._options, self._backend, self._backend_name = options, backend, backend_name
        self._settings = options.loop()
        self._recogniser: StreamingEngine = open_streaming(options.recogniser)
        self._model = Model(options, sessions, "from-text")
        self._usage: list[LoopUsage] = []
        self.capabilities = Capabilities(
            full_duplex=True,
            frame_synchronous=True,
            knows_idle=not self._recogniser.realtime_only,
            emits_text=True,
            accepts_oracle=True,
            max_sessions=sessions,
        )

    async def start(self) -> None:
        await self._backend.start()
        await call_in_thread(self._recogniser.start)
        await self._model.start()

    def session(self, context: SessionContext) -> Session:
        tokenizer = self._model.loaded.tokenizer
        return KameSession(context, self._model.open, lambda: self._loop(context), tokenizer)

    def _loop(self, context: SessionContext) -> TandemLoop:
        model = self._model.loaded
        settings = self._options.model_dump(mode="json", exclude={"instructions"})
        settings["backend"] = self._backend_name or self._backend.name
        header = Header(pad_id=model.engine.pad_id, initial_id=model.engine.initial_id, settings=settings)
        loop = TandemLoop(
            self._backend,
            self._recogniser.open(context.activity),
            model.tokenizer,
            LogWriter(context.folder, header),
            Surroundings(context.activity, context.emit, lambda: context.turn),
            self._settings,
        )
        self._usage.append(loop.usage)
        return loop

    def describe(self) -> dict[str, Any]:
        return {**self._model.describe(), "recogniser": self._recogniser.name}

    def usage(self) -> dict[str, Any]:
        totals = [
            sum(getattr(usage, name) for usage in self._usage)
            for name in ("requests", "input_tokens", "output_tokens")
        ]
        return {
            self._backend.name: dict(zip(("requests", "input_tokens", "output_tokens"), totals, strict=True))
        }

    async def aclose(self) -> None:
        await self._backend.aclose()
        await call_in_thread(self._recogniser.close)
        await self._model.aclose()


def create(setup: Setup) -> System:
    """Refuses a run without a back-end: that would be Moshi.

    Raises:
        BadConfig
    """
    if setup.backend is None:
        raise BadConfig("KAME needs a back-end. Name one with --backend, for example --backend local.")
    options = read_options(KameOptions, setup.options)
    return KameSystem(options, setup.backend, setup.backend_name, setup.sessions)

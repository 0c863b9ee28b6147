"""The back-end whose answers are known, and when each piece of them comes: for tests and templates."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from kamebench.clock import NS_PER_S, Clock, MonotonicClock
from kamebench.errors import BackendFault, BadConfig
from kamebench.llm.base import Backend, ChatRequest, StreamEnd, TextChunk, Usage
from kamebench.llm.reference import words_of
from kamebench.llm.setup import BackendOptions, BackendSetup, read_options


@dataclass(frozen=True, slots=True)
class Step:
    """After `delay_s` more seconds: a piece of text, the end, or a fault."""

    delay_s: float
    what: str | StreamEnd | BackendFault


Script = Sequence[Step]


class ScriptedBackend(Backend):
    """Answers the n-th request with the n-th script, the last one for all further requests.

    A script without an end gets one (`stop`, with the pieces counted as tokens). `requests` holds what was
    asked, `cancelled` the indices of streams that were closed before their end.
    """

    name = "scripted"
    family = "scripted"

    def __init__(self, scripts: Sequence[Script], clock: Clock | None = None) -> None:
        if not scripts:
            raise BadConfig("a scripted back-end needs at least one script.")
        self._scripts, self._clock = scripts, clock or MonotonicClock()
        self.requests: list[ChatRequest] = []
        self.cancelled: list[int] = []

    async def stream(self, request: ChatRequest) -> AsyncIterator[TextChunk | StreamEnd]:
        index = len(self.requests)
        self.requests.append(request)
        script = self._scripts[min(index, len(self._scripts) - 1)]
        due_ns = self._clock.now_ns()
        said = 0
        end = StreamEnd("cancelled")
        try:
            for step in script:
                due_ns += round(step.delay_s * NS_PER_S)
                if step.delay_s > 0:
                    await self._clock.sleep_until_ns(due_ns)
                if isinstance(step.what, BackendFault):
                    end = StreamEnd("unknown")
                    raise step.what
                if isinstance(step.what, StreamEnd):
                    end = step.what
                    break
                said += 1
                yield TextChunk(step.what)
            else:
                asked = sum(len(message.content.split()) for message in request.messages)
                end = StreamEnd("stop", Usage(asked, said))
        finally:
            if end.finish_reason == "cancelled":
                self.cancelled.append(index)
        yield end


class ScriptedOptions(BackendOptions):
    """first_token_s: before the first word. word_s: between two words."""

    first_token_s: float = 0.0
    word_s: float = 0.0


def say(text: str, first_token_s: float = 0.0, word_s: float = 0.0) -> Script:
    """The script that says a text word by word."""
    return [Step(word_s if n else first_token_s, word) for n, word in enumerate(words_of(text))]


def create(setup: BackendSetup) -> Backend:
    """`scripted:TEXT` answers every request with the text.

    Raises:
        BadConfig: there is no text.
    """
    options = read_options(ScriptedOptions, setup, "scripted")
    if not setup.model.strip():
        raise BadConfig("back-end 'scripted': say what it answers, for example 'scripted:Good morning.'.")
    return ScriptedBackend([say(setup.model, options.first_token_s, options.word_s)], setup.clock)

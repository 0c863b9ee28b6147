"""One streaming interface for every language model: cascades, oracles and judges all speak it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Literal

Role = Literal["system", "user", "assistant"]
FinishReason = Literal["stop", "length", "refusal", "cancelled", "unknown"]


@dataclass(frozen=True, slots=True)
class Message:
    role: Role
    content: str


@dataclass(frozen=True, slots=True)
class TurnContext:
    """Which turn of which task a request belongs to.

    Never sent to a provider. `reference` needs it to speak the task's own answer, `router` to know the
    category; everything else must work without it.
    """

    task: str
    question_id: str
    category: str
    turn: int
    references: tuple[str | None, ...] = ()


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A conversation to be continued. `max_tokens` None: the provider's own limit."""

    messages: tuple[Message, ...]
    temperature: float = 0.0
    max_tokens: int | None = None
    context: TurnContext | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the provider counted them; None where it did not say."""

    input_tokens: int | None = None
    output_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class TextChunk:
    """A piece of the answer, never empty, spaces kept."""

    text: str


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """The last item of every stream that did not fail."""

    finish_reason: FinishReason
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True)
class Completion:
    text: str
    finish_reason: FinishReason
    usage: Usage


class Backend(ABC):
    """A language model.

    `name` is what tables show ("gpt-4.1"), `family` who made it ("openai", "anthropic", "google", "local"):
    a judge of the back-end's own family is warned about.
    """

    name: str
    family: str
    # Whether tokens cost money, known price or not.
    billed: bool = False

    async def start(self) -> None:
        """Make it ready (load weights, open a pool) before the clock of any session runs."""

    @abstractmethod
    def stream(self, request: ChatRequest) -> AsyncIterator[TextChunk | StreamEnd]:
        """Stream the answer: `TextChunk`s, then one `StreamEnd`.

        Nothing is retried in here. Closing the iterator or cancelling its task closes the connection.

        Raises:
            BackendFault: with whose fault it is and whether a retry makes sense.
        """

    async def complete(self, request: ChatRequest) -> Completion:
        """The whole answer at once."""
        parts: list[str] = []
        end = StreamEnd("unknown")
        stream = self.stream(request)
        try:
            async for item in stream:
                if isinstance(item, StreamEnd):
                    end = item
                else:
                    parts.append(item.text)
        finally:
            await close_stream(stream)
        return Completion("".join(parts), end.finish_reason, end.usage)

    def describe(self) -> dict[str, Any]:
        """Model, address and settings for a run's manifest; no keys."""
        return {"model": self.name, "family": self.family}

    def usage(self) -> dict[str, Any]:
        """Requests, tokens and cost so far, by 'family:model'; empty where nobody counts."""
        return {}

    def check_cost(self) -> None:
        """To be called between sessions.

        Raises:
            CostLimit: what was asked so far has cost as much as it may.
        """

    async def aclose(self) -> None:
        """Release connections, processes and memory."""


async def close_stream(stream: AsyncIterator[Any]) -> None:
    """Close a stream at once, not when it happens to be collected."""
    close = getattr(stream, "aclose", None)
    if close is not None:
        await close()

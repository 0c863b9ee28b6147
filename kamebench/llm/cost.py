"""What is asked of language models and what it costs: counted, estimated before, and limited.

Prices: `prices.toml`. Tokens are the provider's own count; where it gave none (a stream that was cancelled or
broke) they are estimated from the text and counted apart.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from functools import cache
from importlib.resources import files
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from kamebench.errors import BackendFault, BadConfig, UserError
from kamebench.llm.base import Backend, ChatRequest, StreamEnd, TextChunk, close_stream

# OpenAI's rule of thumb for English: help.openai.com, "What are tokens and how to count them?"
CHARACTERS_PER_TOKEN = 4.0
_SNAPSHOT = re.compile(r"-(\d{4}-\d{2}-\d{2}|\d{8}|latest)$")


class CostLimit(UserError):
    """As much was spent as may be. What was done so far is kept, and the run can be taken up again."""


class Price(BaseModel):
    """US dollars per million tokens."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    input: float = Field(ge=0)
    output: float = Field(ge=0)
    seen: date

    def usd(self, input_tokens: float, output_tokens: float) -> float:
        return (input_tokens * self.input + output_tokens * self.output) / 1e6


class _Provider(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    source: str
    note: str = ""
    models: dict[str, Price]


@cache
def price_table() -> dict[str, _Provider]:
    """Family -> its prices with their source."""
    text = (files("kamebench.llm") / "prices.toml").read_text(encoding="utf-8")
    return {name: _Provider.model_validate(row) for name, row in tomllib.loads(text).items()}


def price_of(family: str, model: str) -> Price | None:
    """A model's price; None where it is not known."""
    provider = price_table().get(family)
    if provider is None:
        return None
    return provider.models.get(model) or provider.models.get(_SNAPSHOT.sub("", model))


def estimate_tokens(text: str) -> int:
    """Tokens of an English text, by its length."""
    return math.ceil(len(text) / CHARACTERS_PER_TOKEN)


@dataclass(slots=True)
class Row:
    """What one model was asked.

    requests = completed + cancelled + failed (+ those in flight). restarts: requests that took the place of
    a cancelled one in the same turn. input_tokens, output_tokens: as the provider counted. estimated_*: where
    it did not say.
    """

    family: str
    model: str
    billed: bool
    requests: int = 0
    completed: int = 0
    cancelled: int = 0
    failed: int = 0
    restarts: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    estimated_input_tokens: int = 0
    estimated_output_tokens: int = 0

    @property
    def usd(self) -> float | None:
        """Cost so far; 0 where nothing is billed, None where the price is not known."""
        if not self.billed:
            return 0.0
        price = price_of(self.family, self.model)
        if price is None:
            return None
        return price.usd(
            self.input_tokens + self.estimated_input_tokens, self.output_tokens + self.estimated_output_tokens
        )

    def as_dict(self) -> dict[str, Any]:
        """For a manifest: counts, cost, and the price it was computed with."""
        counts = asdict(self)
        price = price_of(self.family, self.model) if self.billed else None
        counts["cost_usd"] = self.usd
        counts["price"] = price.model_dump(mode="json") if price else None
        if self.billed and price is None:
            counts["cost_reason"] = f"no price is known for {self.family}:{self.model}"
        return counts


@dataclass(slots=True)
class Ledger:
    """All rows of one run, its limit in US dollars, and what earlier stretches of it have spent."""

    max_cost: float | None = None
    spent: float = 0.0
    rows: dict[str, Row] = field(default_factory=dict)

    def row(self, backend: Backend) -> Row:
        """The row of a back-end.

        Raises:
            BadConfig: there is a limit and the back-end costs an unknown price.
        """
        key = f"{backend.family}:{backend.name}"
        if self.max_cost is not None and backend.billed and price_of(backend.family, backend.name) is None:
            raise BadConfig(
                f"a limit of {self.max_cost:g} US dollars cannot be held: no price is known for {key}. "
                "Leave the limit out or choose a model with a known price."
            )
        return self.rows.setdefault(key, Row(backend.family, backend.name, backend.billed))

    @property
    def usd(self) -> float:
        """What is known to have been spent."""
        return self.spent + sum(row.usd or 0.0 for row in self.rows.values())

    def check(self) -> None:
        """Raises: CostLimit."""
        costs = any(row.billed for row in self.rows.values())
        if costs and self.max_cost is not None and self.usd >= self.max_cost:
            raise CostLimit(
                f"the limit of {self.max_cost:.2f} US dollars is reached ({self.usd:.4f} spent). What was "
                "done so far is kept; go on with a higher limit."
            )

    def usage(self) -> dict[str, Any]:
        return {key: row.as_dict() for key, row in self.rows.items()}


class Meter(Backend):
    """A back-end whose requests are counted, and refused once the limit of cost is reached.

    Requests in flight are not in the sum yet: the limit can be overrun by what they cost.
    """

    def __init__(self, inner: Backend, ledger: Ledger) -> None:
        self._inner, self._ledger = inner, ledger
        self.name, self.family, self.billed = inner.name, inner.family, inner.billed
        self._row = ledger.row(inner)
        # How the last request of each question's turn ended; None while one is in flight.
        self._last: dict[tuple[str, str, int], str | None] = {}

    async def start(self) -> None:
        await self._inner.start()

    async def stream(self, request: ChatRequest) -> AsyncIterator[TextChunk | StreamEnd]:
        self._ledger.check()
        self._begin(request)
        said: list[str] = []
        end: StreamEnd | None = None
        outcome = "cancelled"
        stream = self._inner.stream(request)
        try:
            async for item in stream:
                if isinstance(item, StreamEnd):
                    end, outcome = item, "completed"
                    break
                said.append(item.text)
                yield item
        except BackendFault:
            outcome = "failed"
            raise
        finally:
            self._end(request, outcome, "".join(said), end)
            await close_stream(stream)
        if end is not None:
            yield end

    async def aclose(self) -> None:
        await self._inner.aclose()

    def describe(self) -> dict[str, Any]:
        return self._inner.describe()

    def usage(self) -> dict[str, Any]:
        return self._ledger.usage()

    def check_cost(self) -> None:
        self._ledger.check()

    def _begin(self, request: ChatRequest) -> None:
        self._row.requests += 1
        if (key := _turn_of(request)) is not None:
            if self._last.get(key, "completed") in (None, "cancelled"):
                self._row.restarts += 1
            self._last[key] = None

    def _end(self, request: ChatRequest, outcome: str, said: str, end: StreamEnd | None) -> None:
        row = self._row
        setattr(row, outcome, getattr(row, outcome) + 1)
        if (key := _turn_of(request)) is not None:
            self._last[key] = outcome
        usage = end.usage if end is not None else None
        if usage is not None and usage.input_tokens is not None:
            row.input_tokens += usage.input_tokens
        elif outcome != "failed" or said:  # what was refused at once is not billed
            row.estimated_input_tokens += sum(estimate_tokens(m.content) for m in request.messages)
        if usage is not None and usage.output_tokens is not None:
            row.output_tokens += usage.output_tokens
        else:
            row.estimated_output_tokens += estimate_tokens(said)


def _turn_of(request: ChatRequest) -> tuple[str, str, int] | None:
    context = request.context
    return None if context is None else (context.task, context.question_id, context.turn)


@dataclass(frozen=True, slots=True)
class Load:
    """What a run will ask of one model: requests, and tokens of each."""

    requests: int
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Estimate:
    """Cost of a load; `usd` None where the price is not known, with the reason."""

    requests: int
    input_tokens: int
    output_tokens: int
    usd: float | None
    reason: str = ""


def cascade_load(questions: Sequence[Sequence[str]], *, instructions: str, answer_tokens: int = 150) -> Load:
    """One request a turn, each with the conversation so far. `questions`: the texts of each one's turns."""
    asked = 0
    for turns in questions:
        history = estimate_tokens(instructions)
        for turn in turns:
            history += estimate_tokens(turn)
            asked += history
            history += answer_tokens
    requests = sum(len(turns) for turns in questions)
    return Load(requests, math.ceil(asked / max(1, requests)), answer_tokens)


def oracle_load(
    questions: Sequence[Sequence[str]], turn_s: Sequence[float], *, instructions: str, poll_s: float = 0.5
) -> Load:
    """KAME: while the user speaks a request with every poll, each with the transcript so far. An upper bound:

    a poll without new words asks nothing. `turn_s`: spoken length of each turn, in the questions' order.
    """
    asked, requests = 0, 0
    lengths = iter(turn_s)
    for turns in questions:
        before = 0
        for turn in turns:
            polls = max(1, math.ceil(next(lengths) / poll_s))
            tokens = estimate_tokens(turn)
            asked += polls * (estimate_tokens(instructions) + before) + tokens * (polls + 1) // 2
            before += tokens + 60
            requests += polls
    return Load(requests, math.ceil(asked / max(1, requests)), 45)


def estimate(family: str, model: str, load: Load, *, billed: bool = True) -> Estimate:
    """What a load will cost before anything is asked."""
    asked, said = load.requests * load.input_tokens, load.requests * load.output_tokens
    if not billed:
        return Estimate(load.requests, asked, said, 0.0, "runs on this machine")
    price = price_of(family, model)
    if price is None:
        return Estimate(load.requests, asked, said, None, f"no price is known for {family}:{model}")
    reason = f"price seen on {price.seen}, {price_table()[family].source}"
    return Estimate(load.requests, asked, said, price.usd(asked, said), reason)

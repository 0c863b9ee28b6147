"""Language models by name.

A name is `provider:model` (`openai:gpt-4.1`, `openai-compatible:llama3@http://localhost:11434/v1`,
`replay:FOLDER`, `router:FILE`), a provider alone where it needs no model (`local`, `reference`), or a model
whose first letters tell its provider (`gpt-4.1`, `claude-opus-4-1`, `gemini-2.5-flash`).
A new provider is one file with `create(setup) -> Backend` and one entry here, or an entry point of group
`kamebench.backends`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kamebench.clock import Clock, MonotonicClock
from kamebench.errors import BadConfig, UnknownName
from kamebench.llm.base import Backend
from kamebench.llm.cassette import RecordingBackend
from kamebench.llm.cost import Ledger, Meter, price_table
from kamebench.llm.setup import BackendSetup
from kamebench.registry import Entry, Registry

BACKENDS = Registry(
    "back-end",
    "kamebench.backends",
    {
        "openai": Entry("kamebench.llm.openai:create", "openai", "openai:MODEL, gpt-..."),
        "openai-compatible": Entry(
            "kamebench.llm.openai:create_compatible", "openai", "openai-compatible:MODEL"
        ),
        "anthropic": Entry("kamebench.llm.anthropic:create", "anthropic", "anthropic:MODEL, claude-..."),
        "google": Entry("kamebench.llm.google:create", "google", "google:MODEL, gemini-..."),
        "local": Entry("kamebench.llm.local:create", "local"),
        "reference": Entry("kamebench.llm.reference:create"),
        "scripted": Entry("kamebench.llm.scripted:create", usage="scripted:FILE"),
        "replay": Entry("kamebench.llm.cassette:create", usage="replay:FOLDER"),
        "router": Entry("kamebench.llm.router:create", usage="router:FILE"),
    },
)

_BY_PREFIX = (
    (re.compile(r"(gpt-|chatgpt-|o\d)"), "openai"),
    (re.compile(r"claude-"), "anthropic"),
    (re.compile(r"gemini-"), "google"),
)

_WITHOUT_ADDRESS = ("local", "reference", "scripted", "replay", "router")
_NEEDS_MODEL = ("openai", "anthropic", "google")


def open_backend(
    name: str,
    *,
    url: str | None = None,
    record: Path | None = None,
    clock: Clock | None = None,
    max_cost: float | None = None,
    spent: float = 0.0,
    **options: Any,
) -> Backend:
    """The back-end of a name; no weights, key or connection before its `start` or first use.

    What is asked of it is counted: `Backend.usage()`.

    Args:
        name: see the module.
        url: address of a server; for `openai-compatible`, or of a proxy in front of a provider.
        record: folder of a cassette to write, see `kamebench.llm.cassette`.
        clock: what `scripted` and `replay` wait on; default the machine's monotonic clock.
        max_cost: US dollars after which every further request raises `CostLimit`.
        spent: US dollars spent before, which count against the limit and not in `usage`.
        options: the back-end's own, such as `first_token_s`.

    Raises:
        UnknownName: with the nearest known name. MissingExtra: a package it needs is not installed.
        BadConfig: the model, the address or an option cannot be used, or a limit of cost cannot be held.
    """
    opening = _Opening(record, clock or MonotonicClock(), Ledger(max_cost, spent))
    return opening.open(name, url, options)


@dataclass(frozen=True, slots=True)
class _Opening:
    """What the back-ends behind one name share: a router opens several."""

    record: Path | None
    clock: Clock
    ledger: Ledger

    def open(self, name: str, url: str | None, options: dict[str, Any]) -> Backend:
        provider, model = resolve(name)
        if url is not None and provider in _WITHOUT_ADDRESS:
            raise BadConfig(f"back-end '{name}' has no address: leave {url} out, or name a model behind it.")
        create = BACKENDS.load(provider)
        setup = BackendSetup(model, url, self.clock, options, lambda other: self.open(other, None, {}))
        backend: Backend = create(setup)
        if provider == "router":  # those behind it are counted and recorded
            return backend
        if self.record is not None:
            backend = RecordingBackend(backend, self.record, self.clock)
        return Meter(backend, self.ledger)


def resolve(name: str) -> tuple[str, str]:
    """A name as (provider, model).

    Raises:
        UnknownName: no such provider, and no provider's prefix. BadConfig: a provider without a model.
    """
    providers = BACKENDS.names()
    provider, colon, model = name.partition(":")
    if provider not in providers:
        found = next((p for prefix, p in _BY_PREFIX if prefix.match(name)), None)
        if found is None:
            models = [model for provider in price_table().values() for model in provider.models]
            raise UnknownName("back-end", name, [*providers, *models])
        provider, model = found, name
    if provider in _NEEDS_MODEL and not model:
        raise BadConfig(f"back-end '{name}': name a model of it, as in '{provider}{colon or ':'}MODEL'.")
    return provider, model

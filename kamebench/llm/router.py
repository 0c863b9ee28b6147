"""A table category -> back-end: `router:FILE`, a TOML file.

    default = "gpt-4.1-nano"          # for categories that the table does not name
    [routes]
    reasoning = "gpt-4.1"
    humanities = "local"
    [words]                           # optional: more words that tell a category, for guessing
    reasoning = ["riddle"]

The category of a question comes with the request in a benchmark. Where it does not, it is guessed from words
of the user's last message: the category with most matching words among the routes, else the default. Every
guess is logged with what it rests on.
"""

from __future__ import annotations

import logging
import re
import tomllib
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kamebench.errors import BadConfig
from kamebench.llm.base import Backend, ChatRequest, StreamEnd, TextChunk, close_stream
from kamebench.llm.setup import BackendOptions, BackendSetup, read_options

_LOG = logging.getLogger(__name__)

# A few words that set questions of MT-Bench's categories apart; cheap, and known to be wrong at times.
_WORDS: dict[str, tuple[str, ...]] = {
    "reasoning": ("if", "how many", "which of", "who is", "true or false", "riddle", "older", "left of"),
    "math": ("solve", "equation", "probability", "sum", "divided", "triangle", "percent", "integer"),
    "coding": ("code", "function", "python", "algorithm", "program", "html", "regular expression"),
    "stem": ("physics", "chemical", "energy", "cell", "molecule", "machine learning", "engineering", "atom"),
    "humanities": ("history", "economic", "philosophy", "war", "literature", "culture", "ethical", "art"),
    "writing": ("write", "compose", "draft", "essay", "story", "email", "poem"),
    "roleplay": ("pretend", "imagine you are", "act as", "role"),
    "extraction": ("extract", "identify the", "json", "csv", "count the"),
}


class RouterFile(BaseModel):
    """One router's TOML."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    default: str
    routes: dict[str, str] = Field(min_length=1)
    words: dict[str, tuple[str, ...]] = Field(default_factory=dict)


class RouterBackend(Backend):
    """Sends each request to the back-end of its category."""

    family = "router"

    def __init__(self, name: str, table: RouterFile, backends: Mapping[str, Backend]) -> None:
        self.name, self._table, self._backends = name, table, backends
        self.billed = any(backend.billed for backend in backends.values())
        self._words = {
            category: (*_WORDS.get(category, ()), *table.words.get(category, ())) for category in table.routes
        }
        self.decisions: Counter[tuple[str, str]] = Counter()

    async def start(self) -> None:
        for backend in self._backends.values():
            await backend.start()

    async def stream(self, request: ChatRequest) -> AsyncIterator[TextChunk | StreamEnd]:
        stream = self._backends[self._route(request)].stream(request)
        try:
            async for item in stream:
                yield item
        finally:
            await close_stream(stream)

    async def aclose(self) -> None:
        for backend in self._backends.values():
            await backend.aclose()

    def describe(self) -> dict[str, Any]:
        return {
            "model": self.name,
            "family": self.family,
            "table": self._table.model_dump(mode="json"),
            "backends": {name: backend.describe() for name, backend in self._backends.items()},
            "decisions": {f"{how}: {category}": n for (how, category), n in sorted(self.decisions.items())},
        }

    def usage(self) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        for backend in self._backends.values():
            merged |= backend.usage()
        return merged

    def check_cost(self) -> None:
        for backend in self._backends.values():
            backend.check_cost()

    def _route(self, request: ChatRequest) -> str:
        if request.context is not None:
            how, category = "known", request.context.category
        else:
            how, (category, matched) = "guessed", self._guess(request)
            _LOG.info("guessed category '%s' from %s", category, matched or "no known word")
        self.decisions[how, category] += 1
        return self._table.routes.get(category, self._table.default)

    def _guess(self, request: ChatRequest) -> tuple[str, list[str]]:
        """The category with most matching words, and those words; ties go to the table's first."""
        asked = [m.content for m in request.messages if m.role == "user"]
        text = asked[-1].lower() if asked else ""
        best: tuple[str, list[str]] = ("default", [])
        for category, words in self._words.items():
            matched = [word for word in words if re.search(rf"\b{re.escape(word.lower())}\b", text)]
            if len(matched) > len(best[1]):
                best = (category, matched)
        return best


def create(setup: BackendSetup) -> Backend:
    """Read the table and open each back-end it names, once.

    Raises:
        BadConfig: the file is missing or wrong. UnknownName: it names a back-end that does not exist.
    """
    read_options(BackendOptions, setup, "router")
    path = Path(setup.model)
    try:
        table = RouterFile.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise BadConfig(f"router:{path}: cannot be read ({type(error).__name__}).") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadConfig(f"router:{path}: is not TOML ({error}).") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BadConfig(f"router:{path}: {where}: {first['msg']}. See docs/backends.md.") from None
    assert setup.open is not None
    names = dict.fromkeys((table.default, *table.routes.values()))
    return RouterBackend(f"router:{path.stem}", table, {name: setup.open(name) for name in names})

"""Published figures, read from `published.toml` beside this module."""

from __future__ import annotations

import tomllib
from pathlib import Path

from pydantic import Field

from kamebench.records import Record


class Figure(Record):
    """One published row. `latency_s` None: the row is text and has no latency."""

    system: str
    backend: str | None = None
    score: float = Field(ge=1, le=10)
    latency_s: float | None = None
    latency_text: str
    categories: dict[str, float] = Field(default_factory=dict)

    @property
    def label(self) -> str:
        return f"{self.system} · {self.backend}" if self.backend else self.system


class Source(Record):
    """Where the figures are from, and on which task they were obtained."""

    title: str
    url: str
    task: str
    note: str


class Published(Record):
    """The whole file."""

    source: Source
    figure: tuple[Figure, ...]


def read() -> Published:
    path = Path(__file__).with_name("published.toml")
    return Published.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))

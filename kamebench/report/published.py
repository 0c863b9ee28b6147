"""Published figures, read from `published.toml` beside this module."""

from __future__ import annotations

import tomllib
from pathlib import Path

from pydantic import Field

from kamebench.records import Record, What


class Figure(Record):
    """One published row. `latency_s` None: the row is text and has no latency. `what`: the text judged."""

    system: str
    backend: str | None = None
    score: float = Field(ge=1, le=10)
    latency_s: float | None = None
    latency_text: str
    what: What = "spoken"
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

    def fit(self, task: str, llm_judge: bool) -> bool:
        """Whether they may stand beside a measured score: same task, and both from an LLM judge."""
        return llm_judge and task == self.source.task


def read() -> Published:
    path = Path(__file__).with_name("published.toml")
    return Published.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))

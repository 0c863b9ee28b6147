"""Who is told how far a long piece of work is."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """`stage` begins a stretch of `total` steps; `step` ends one, its note may say which or what failed."""

    def stage(self, title: str, total: int) -> None: ...

    def step(self, note: str = "") -> None: ...

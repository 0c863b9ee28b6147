"""What commands share at the terminal: progress, tables, choices."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

console = Console()
errors = Console(stderr=True)


class Reporter:
    """Progress of long commands: bars at a terminal, one plain line a stage elsewhere; all on stderr."""

    def __init__(self) -> None:
        self._bars: Progress | None = None
        self._bar: TaskID | None = None
        self._title, self._began = "", 0.0
        self._done = self._total = 0

    def __enter__(self) -> Reporter:
        if errors.is_terminal:
            self._bars = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("[dim]{task.fields[note]}"),
                console=errors,
            )
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars is not None:
            self._bars.stop()
        elif kind is None:
            self._close_stage()

    def stage(self, title: str, total: int) -> None:
        """Begin a stretch of `total` steps."""
        if self._bars is not None:
            self._bar = self._bars.add_task(title, total=total, note="")
            return
        self._close_stage()
        self._title, self._total, self._done, self._began = title, total, 0, time.perf_counter()

    def step(self, note: str = "") -> None:
        """End one step of the stage; notes that tell of a fault are kept on screen."""
        if self._bars is not None and self._bar is not None:
            self._bars.update(self._bar, advance=1, note=note)
            if "fault" in note:
                errors.print(f"[yellow]{note}")
            return
        self._done += 1
        if "fault" in note:
            print(f"  {note}", file=sys.stderr, flush=True)

    def waiting(self, seconds: float, why: str) -> None:
        """Requests are held up for `seconds`: shown as waiting, not as work."""
        text = f"waiting {seconds:.0f} s for {why}"
        if self._bars is not None and self._bar is not None:
            self._bars.update(self._bar, note=text)
        else:
            print(f"  {text}", file=sys.stderr, flush=True)

    def _close_stage(self) -> None:
        if self._title:
            took = time.perf_counter() - self._began
            print(f"{self._title}: {self._done}/{self._total} in {took:.1f} s", file=sys.stderr, flush=True)
            self._title = ""


def table(rows: list[dict[str, Any]]) -> Table:
    """A plain table of dicts with the same keys; numbers to the right."""
    made = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name, value in rows[0].items():
        right = isinstance(value, int | float)
        made.add_column(name, justify="right" if right else "left", overflow="fold", no_wrap=right)
    for row in rows:
        made.add_row(*(escape(str(value)) for value in row.values()))
    return made

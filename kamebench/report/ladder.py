"""Where a tandem gains and loses quality: one judge's scores from the back-end's text to what was heard."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from kamebench.records import Aggregate
from kamebench.report.charts import SCORE_RANGE, Axis, axis
from kamebench.report.published import Published
from kamebench.stats import score_aggregates
from kamebench.store import Run

ABLATIONS = "ablations.json"
WIDTH_PX = 260

POINTS = {
    "backend-text": "back-end asked the whole question as text",
    "oracle-completed": "last oracle the back-end completed",
    "oracle-last": "last oracle injected",
    "oracle-onset-full": "whole answer of the request in force at the onset",
    "oracle-onset-injected": "what of it was injected by the onset",
    "oracle-onset": "what of it was consumed by the onset",
    "text-stream": "the system's own text",
    "spoken": "what was spoken and heard",
}


@dataclass(frozen=True)
class Rung:
    """One point of the way, or a published figure beside it. `categories` holds every column in order."""

    name: str
    score: Aggregate | float
    categories: tuple[Aggregate | float | None, ...]
    published: bool = False


@dataclass(frozen=True)
class Step:
    """A paired difference between two points, in points of the score."""

    start: str
    to: str
    between: str
    difference: float | None
    low: float | None
    high: float | None
    n: int
    n_missing: int
    reason: str


@dataclass(frozen=True)
class Ladder:
    """The rungs, knowledge first. `x`: the score's axis of the little charts."""

    categories: tuple[str, ...]
    rungs: tuple[Rung, ...]
    x: Axis


def ladder(run: Run, published: Published | None) -> Ladder | None:
    """Scores of the run's own judge at every point; None with a single point.

    Args:
        published: figures that may stand beside these: same task, an LLM judge.
    """
    primary = run.scores.get(run.manifest.primary_score or "")
    if primary is None:
        return None
    files = {file.what: name for name, file in run.scores.items() if file.judge == primary.judge}
    if len(files) < 2:
        return None
    found = {what: score_aggregates(run.table(files[what])) for what in POINTS if what in files}
    categories = tuple(dict.fromkeys(row.group for rows in found.values() for row in rows[1:]))
    rungs: list[Rung] = []
    for what, (overall, *rows) in found.items():
        by_name = {row.group: row for row in rows}
        rungs.append(Rung(POINTS[what], overall, tuple(by_name.get(name) for name in categories)))
        for figure in published.figure if published else ():
            if figure.what == what:
                values = tuple(figure.categories.get(name) for name in categories)
                rungs.append(Rung(figure.label, figure.score, values, published=True))
    return Ladder(categories, tuple(rungs), axis(*SCORE_RANGE, 6, WIDTH_PX - 6))


def steps(run: Run) -> tuple[tuple[str, tuple[Step, ...]], ...]:
    """The stored differences between the points, by judge; a file that cannot be read gives none."""
    path = run.path / ABLATIONS
    if not path.is_file():
        return ()
    try:
        ladders = json.loads(path.read_text(encoding="utf-8"))["ladders"]
        return tuple((name, tuple(map(_step, found["steps"]))) for name, found in ladders.items())
    except (OSError, ValueError, KeyError, TypeError):
        return ()


def _step(raw: dict[str, Any]) -> Step:
    return Step(
        start=POINTS[raw["start"]],
        to=POINTS[raw["to"]],
        between=raw["between"],
        difference=raw["difference"],
        low=raw["low"],
        high=raw["high"],
        n=raw["n"],
        n_missing=raw["n_missing"],
        reason=raw["reason"],
    )

"""Comparison of whole runs: every metric paired, and the questions that changed most."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kamebench.errors import UserError
from kamebench.stats.comparable import Difference, differences, fatal
from kamebench.stats.paired import (
    METRICS,
    PairedDifference,
    metric_named,
    paired_difference,
    question_changes,
)
from kamebench.stats.snapshot import Snapshot, take
from kamebench.store import AUDIO, Run

N_CHANGES = 5


@dataclass(frozen=True)
class Change:
    """A question that changed much. `listen`: recordings of it in both runs, where they are kept."""

    question_id: str
    category: str
    score_change: float
    listen: tuple[str, ...]


@dataclass(frozen=True)
class Comparison:
    """One run against the first. `results`: metrics overall, then the score by category."""

    first: str
    second: str
    results: tuple[tuple[str, PairedDifference], ...]
    changes: tuple[Change, ...]
    differences: tuple[Difference, ...]


def compare(first: Run, second: Run, *, score: str | None = None, force: bool = False) -> Comparison:
    """Compare two stored runs, second minus first.

    Raises:
        UserError: what was measured differs (task, audio, judge, detector, references), unless forced.
        BadRun: a run that is not whole, or no turn in common.
    """
    a, b = take(first, score), take(second, score)
    found = differences(a, b)
    if (stops := fatal(found)) and not force:
        raise UserError(
            f"{a.title} and {b.title} are not comparable: "
            + "; ".join(str(difference) for difference in stops)
            + ". Run or score both alike, or compare all the same with --force."
        )
    before, after = a.table(), b.table()
    results = [("overall", paired_difference(before, after, name)) for name in METRICS]
    categories = [name for name in dict.fromkeys(before["category"]) if (after["category"] == name).any()]
    results += [(name, paired_difference(before, after, "score", (name,))) for name in categories]
    return Comparison(a.title, b.title, tuple(results), _most_changed(first, second, a, b), tuple(found))


def _most_changed(first: Run, second: Run, a: Snapshot, b: Snapshot) -> tuple[Change, ...]:
    changes = question_changes(a.table(), b.table(), metric_named("score"))
    ranked = sorted((q for q in changes if changes[q] != 0), key=lambda q: (-abs(changes[q]), q))
    category = {turn.question_id: turn.category for turn in a.turns}
    return tuple(
        Change(question, category[question], changes[question], _listen(question, first, second))
        for question in ranked[:N_CHANGES]
    )


def _listen(question: str, *runs: Run) -> tuple[str, ...]:
    paths: list[Path] = [run.session_folder(question) / AUDIO for run in runs]
    return tuple(str(path) for path in paths if path.exists())

"""Several judges on the same answers, and how far they agree."""

from __future__ import annotations

import asyncio
import itertools
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kamebench.judge.base import Item, Judge
from kamebench.judge.limit import OnWait
from kamebench.llm.cost import Estimate
from kamebench.records import Verdict
from kamebench.tasks import Task


class Panel(Judge):
    """A turn's score is the mean over its judges; a turn that one of them could not score has none, since a
    mean over other judges would not be comparable."""

    def __init__(self, judges: Sequence[Judge]) -> None:
        self.judges = tuple(judges)
        self.name = ",".join(judge.name for judge in judges)
        self.family = ",".join(judge.family for judge in judges)
        self.comparable_with_llm_judge = all(judge.comparable_with_llm_judge for judge in judges)
        self.needs_history = any(judge.needs_history for judge in judges)
        self.references = next((judge.references for judge in judges if judge.references), None)

    def check(self, task: Task) -> None:
        for judge in self.judges:
            judge.check(task)

    def settings(self) -> dict[str, Any]:
        return {"judge": "panel", "panel": {judge.name: judge.settings() for judge in self.judges}}

    def warnings(self, backend: str | None) -> tuple[str, ...]:
        return tuple(warning for judge in self.judges for warning in judge.warnings(backend))

    def listen(self, on_wait: OnWait | None) -> None:
        for judge in self.judges:
            judge.listen(on_wait)

    def order(self, items: list[Item]) -> list[Item]:
        return self.judges[0].order(items)

    def estimate(self, items: list[Item], repeats: int) -> list[Estimate]:
        return [row for judge in self.judges for row in judge.estimate(items, repeats)]

    def usage(self) -> dict[str, Any]:
        return {judge.name: usage for judge in self.judges if (usage := judge.usage())}

    async def judge(self, item: Item, repeat: int = 0) -> Verdict:
        verdicts = await asyncio.gather(*(judge.judge(item, repeat) for judge in self.judges))
        failed = [
            (judge.name, verdict)
            for judge, verdict in zip(self.judges, verdicts, strict=True)
            if verdict.score is None
        ]
        detail = {
            "panel": {
                judge.name: {"score": verdict.score, "status": verdict.status, "why": _why(verdict)}
                for judge, verdict in zip(self.judges, verdicts, strict=True)
            }
        }
        update: dict[str, Any] = {"detail": verdicts[0].detail | detail, "explanation": ""}
        update["attempts"] = sum(verdict.attempts for verdict in verdicts)
        if failed:
            name, verdict = failed[0]
            update |= {"status": verdict.status, "score": None, "reason": f"{name}: {verdict.reason}"}
        else:
            scores = [verdict.score for verdict in verdicts if verdict.score is not None]
            text = ", ".join(
                f"{judge.name} {score:g}" for judge, score in zip(self.judges, scores, strict=True)
            )
            update |= {"score": statistics.fmean(scores), "reason": text}
        return Verdict.model_validate(verdicts[0].model_copy(update=update).model_dump())

    def summary(self, verdicts: list[Verdict]) -> dict[str, Any]:
        names = [judge.name for judge in self.judges]
        rows = [
            [panel[name]["score"] for name in names]
            for verdict in verdicts
            if (panel := verdict.detail.get("panel")) is not None
        ]
        return {"agreement": agreement(names, rows)} if rows else {}

    async def aclose(self) -> None:
        for judge in self.judges:
            await judge.aclose()


def agreement(names: Sequence[str], scores: Sequence[Sequence[float | None]]) -> dict[str, Any]:
    """How far judges agree on the same turns.

    Args:
        names: of the [n_judges] judges.
        scores: [n_turns][n_judges], None where a judge gave none.

    Returns:
        `krippendorff_alpha` (interval scale; 1 is full agreement, 0 what chance gives) over all judges, and
        for each pair `mean_absolute_difference`, `mean_difference` (second minus first) and `spearman`, over
        the turns that both scored. What cannot be computed is None.
    """
    table = np.array([[np.nan if value is None else value for value in row] for row in scores], dtype=float)
    pairs = [
        {"judges": [names[a], names[b]], **_pair(table[:, a], table[:, b])}
        for a, b in itertools.combinations(range(len(names)), 2)
    ]
    return {"n_turns": len(table), "krippendorff_alpha": krippendorff_alpha(table), "pairs": pairs}


def krippendorff_alpha(table: NDArray[np.float64]) -> float | None:
    """Krippendorff's alpha for interval data, [n_turns, n_judges] with NaN for missing scores; None where
    fewer than two turns have two scores, or all scores are equal (Krippendorff 2011, "Computing
    Krippendorff's alpha-reliability")."""
    units = [row[~np.isnan(row)] for row in table]
    units = [unit for unit in units if len(unit) > 1]
    if len(units) < 2:
        return None
    values = np.concatenate(units)
    # Sums of squared differences over all ordered pairs: within turns, and over everything.
    within = sum(float(2 * len(u) * np.sum((u - u.mean()) ** 2)) / (len(u) - 1) for u in units) / len(values)
    total = float(2 * len(values) * np.sum((values - values.mean()) ** 2)) / (len(values) * (len(values) - 1))
    return None if total == 0 else 1 - within / total


def _pair(first: NDArray[np.float64], second: NDArray[np.float64]) -> dict[str, Any]:
    from scipy import stats

    both = ~np.isnan(first) & ~np.isnan(second)
    a, b = first[both], second[both]
    varies = len(a) > 2 and len(set(a)) > 1 and len(set(b)) > 1
    return {
        "n": len(a),
        "mean_absolute_difference": float(np.mean(np.abs(b - a))) if len(a) else None,
        "mean_difference": float(np.mean(b - a)) if len(a) else None,
        "spearman": float(np.corrcoef(stats.rankdata(a), stats.rankdata(b))[0, 1]) if varies else None,
    }


def _why(verdict: Verdict) -> str:
    return verdict.explanation or verdict.reason

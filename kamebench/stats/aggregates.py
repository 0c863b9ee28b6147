"""Scores of a run: the mean over judged turns, overall and by category, with intervals over questions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kamebench.records import Aggregate
from kamebench.stats.intervals import (
    CONFIDENCE,
    MIN_QUESTIONS,
    Estimate,
    Method,
    bca,
    bounded_mean,
    mean_over_turns,
)
from kamebench.stats.turns import TurnValues, column, pick, texts

if TYPE_CHECKING:
    import pandas as pd

OVERALL = "overall"


def score_aggregates(
    table: pd.DataFrame,
    *,
    method: Method = "skew-t",
    confidence: float = CONFIDENCE,
    bounds: tuple[float, float] = (1, 10),
) -> list[Aggregate]:
    """Mean score over judged turns: `overall` first, then every category in the table's order.

    A silent turn carries its score of 1; a turn that faulted or was not judged is missing and counted.

    Args:
        table: of `Run.table()`.
        method: "skew-t" (t over question means, corrected for skewness: the default by coverage, see
            docs/gates.md), "t" or "bca".
        confidence: two-sided.
        bounds: smallest and largest score; an interval does not leave them.
    """
    values = column(table, "score")
    categories = texts(table, "category")
    made = [aggregate("score", OVERALL, pick(table, values), method, confidence, bounds)]
    for category in dict.fromkeys(categories.tolist()):
        inside = categories == category
        turns = pick(table.loc[inside], values[inside])
        made.append(aggregate("score", str(category), turns, method, confidence, bounds))
    return made


def aggregate(
    metric: str,
    group: str,
    turns: TurnValues,
    method: Method = "skew-t",
    confidence: float = CONFIDENCE,
    bounds: tuple[float, float] | None = None,
) -> Aggregate:
    """The mean of a metric with its interval, or with the reason why there is none."""
    if turns.n == 0:
        return Aggregate(
            metric=metric,
            group=group,
            n=0,
            n_missing=turns.n_missing,
            value=None,
            reason="no turn has a value",
        )
    estimate = mean_over_turns(turns.sums(), turns.counts(), turns.strata)
    if turns.n_questions < MIN_QUESTIONS:
        return plain(metric, group, turns, estimate.value)
    if method == "bca":
        low, high = (float(edge) for edge in bca(turns.sums() / turns.counts(), turns.strata, confidence))
    else:
        low, high = estimate.bounds(confidence) if method == "t" else estimate.skew_bounds(confidence)
    return _with_interval(metric, group, turns, (estimate.value, low, high), bounds, describe(method, turns))


def share(metric: str, group: str, turns: TurnValues, confidence: float = CONFIDENCE) -> Aggregate:
    """The share of turns (values between 0 and 1) with an interval that is not empty at 0 or 1."""
    if turns.n < 1 or turns.n_questions < MIN_QUESTIONS:
        return aggregate(metric, group, turns)
    means = turns.sums() / turns.counts()
    estimate: Estimate = bounded_mean(means, turns.strata, (0.0, 1.0))
    value = float(turns.values.mean())
    low, high = estimate.bounds(confidence)
    text = describe("t", turns) + ", pseudo-questions added"
    return _with_interval(metric, group, turns, (value, low, high), (0.0, 1.0), text)


def plain(metric: str, group: str, turns: TurnValues, value: float | None) -> Aggregate:
    """A value over too few questions for an interval."""
    return Aggregate(
        metric=metric,
        group=group,
        n=turns.n,
        n_missing=turns.n_missing,
        value=value,
        reason=f"no interval: {turns.n_questions} question(s), at least {MIN_QUESTIONS} are needed",
    )


def describe(method: str, turns: TurnValues) -> str:
    n_strata = len(set(turns.strata))
    by = f", stratified by {n_strata} categories" if n_strata > 1 else ""
    return f"{method} over {turns.n_questions} questions{by}"


def _with_interval(
    metric: str,
    group: str,
    turns: TurnValues,
    value_low_high: tuple[float, float, float],
    bounds: tuple[float, float] | None,
    method: str,
) -> Aggregate:
    value, low, high = value_low_high
    if bounds is not None:
        low, high = (float(edge) for edge in np.clip((low, high), *bounds))
    return Aggregate(
        metric=metric,
        group=group,
        n=turns.n,
        n_missing=turns.n_missing,
        value=value,
        low=low,
        high=high,
        method=method,
    )

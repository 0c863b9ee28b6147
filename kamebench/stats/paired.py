"""Paired comparison: the same question and turn in both runs, the question as the unit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from kamebench.errors import BadRun, UserError
from kamebench.stats.intervals import (
    CONFIDENCE,
    MIN_QUESTIONS,
    RESAMPLES,
    Estimate,
    Floats,
    bounded_mean,
    mean_over_turns,
    resample_counts,
    weighted_quantile,
)
from kamebench.stats.turns import TurnValues, column, latencies, pick, shares, talk_over

if TYPE_CHECKING:
    import pandas as pd

Kind = Literal["mean", "share", "median", "change"]
MEDIANS: tuple[Kind, ...] = ("median", "change")


@dataclass(frozen=True)
class Metric:
    """Something of a run that can be compared.

    Attributes:
        name: as in rules and in JSON.
        unit: of value, difference and margin.
        better: +1 where more is better, -1 where less is.
        kind: how it is averaged: mean over turns, share (mean of values in [0, 1]), median over turns; the
            difference of two runs is that of their averages, for `change` the median of the turns' changes.
        read: table -> [n_turns] values, NaN where the turn has none.
    """

    name: str
    unit: str
    better: Literal[1, -1]
    kind: Kind
    read: Callable[[pd.DataFrame], Floats]


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("score", "points", 1, "mean", lambda t: column(t, "score")),
        Metric("latency_change", "ms", -1, "change", latencies),
        Metric("latency_median", "ms", -1, "median", latencies),
        Metric("silent_share", "share", -1, "share", lambda t: shares(t, "silent")),
        Metric("no_response_share", "share", -1, "share", lambda t: shares(t, "silent", "carry_over")),
        Metric("premature_share", "share", -1, "share", lambda t: shares(t, "premature")),
        Metric("talk_over_share", "share", -1, "share", talk_over),
    )
}


@dataclass(frozen=True)
class Bootstrap:
    """An estimate whose error is the spread of its resamples: [n_resamples] values, sorted."""

    value: float
    drawn: Floats
    n_questions: int

    @property
    def se(self) -> float:
        finite = self.drawn[np.isfinite(self.drawn)]
        return float(finite.std()) if len(finite) > 1 else 0.0

    @property
    def df(self) -> float:
        return float("inf")

    def bounds(self, confidence: float = CONFIDENCE) -> tuple[float, float]:
        tail = (1 - confidence) / 2
        low, high = np.quantile(self.drawn, (tail, 1 - tail), method="inverted_cdf")
        return float(low), float(high)

    def p_above(self, limit: float) -> float:
        return float((np.sum(self.drawn <= limit) + 1) / (len(self.drawn) + 1))

    def p_below(self, limit: float) -> float:
        return float((np.sum(self.drawn >= limit) + 1) / (len(self.drawn) + 1))


@dataclass(frozen=True)
class Pairs:
    """One metric of two runs on the turns that both have.

    Attributes:
        first, second: [n] values of the same turns.
        n_missing: turns of either run without a partner or without a value in one of them.
        n_missing_first, n_missing_second: turns without a value in each.
    """

    first: TurnValues
    second: TurnValues
    n_missing: int
    n_missing_first: int
    n_missing_second: int

    @property
    def n(self) -> int:
        return self.first.n

    @property
    def n_questions(self) -> int:
        return self.first.n_questions

    def swapped(self) -> Pairs:
        return Pairs(self.second, self.first, self.n_missing, self.n_missing_second, self.n_missing_first)


@dataclass(frozen=True)
class PairedDifference:
    """Second run minus first, in the metric's unit.

    Attributes:
        difference: of means, or of medians; None without pairs.
        low, high: 95 % interval; None with the reason under five questions.
        effect_size: difference of question means over the standard deviation of those differences (Cohen's
            d for pairs); None where it cannot be computed.
        n: turns compared. n_questions: questions they belong to. n_missing: turns that could not be paired.
    """

    metric: str
    unit: str
    first: float | None
    second: float | None
    difference: float | None
    low: float | None
    high: float | None
    effect_size: float | None
    n: int
    n_questions: int
    n_missing: int
    reason: str = ""


def metric_named(name: str) -> Metric:
    """Look a metric up.

    Raises:
        UserError: unknown; a tail quantile says why it is not there.
    """
    if name in METRICS:
        return METRICS[name]
    if name.startswith("latency_p"):
        raise UserError(
            f"'{name}' is shown, not compared: a tail quantile of 60 turns rests on three of them. "
            "Use latency_median."
        )
    raise UserError(f"There is no metric named '{name}'. Known: {', '.join(METRICS)}.")


def pair(
    first: pd.DataFrame, second: pd.DataFrame, metric: Metric, categories: tuple[str, ...] = ()
) -> Pairs:
    """Join two tables by question and turn, keeping count of what has no partner.

    Several runs of one system (column `repeat`) count as one: a turn's value is the mean over its repeats,
    for medians their median.

    Raises:
        BadRun: a turn that occurs twice, or no turn in common.
    """

    keys = ["question_id", "turn"]
    sides: list[pd.DataFrame] = []
    for name, table in (("first", first), ("second", second)):
        chosen = table[table["category"].isin(categories)] if categories else table
        key = [*keys, "repeat"] if "repeat" in chosen else keys
        if chosen.duplicated(key).any():
            twice = chosen.loc[chosen.duplicated(key), keys].iloc[0].tolist()
            raise BadRun(
                f"question {twice[0]} turn {twice[1]} occurs twice in the {name} run. Measure it again."
            )
        valued = chosen[[*keys, "category"]].assign(value=metric.read(chosen))
        by_turn = valued.groupby([*keys, "category"], sort=False, as_index=False)
        sides.append(by_turn.median() if metric.kind in MEDIANS else by_turn.mean())
    both = sides[0].merge(sides[1], on=keys, how="outer", suffixes=("_first", "_second"), indicator=True)
    if not (both["_merge"] == "both").any():
        raise BadRun(
            f"the runs share no turn{' of ' + ', '.join(categories) if categories else ''}: "
            f"{len(sides[0])} and {len(sides[1])} turns, no pairs. Compare runs of the same questions."
        )
    both["category"] = both["category_first"].fillna(both["category_second"])
    has = both["value_first"].notna() & both["value_second"].notna()
    known = both[has]
    return Pairs(
        first=pick(known, column_of(known, "value_first")),
        second=pick(known, column_of(known, "value_second")),
        n_missing=int((~has).sum()),
        n_missing_first=int(both["value_first"].isna().sum()),
        n_missing_second=int(both["value_second"].isna().sum()),
    )


def column_of(frame: pd.DataFrame, name: str) -> Floats:
    """A column as floats; unlike `column`, infinite values (silent turns) are allowed."""
    return np.asarray(frame[name], dtype=float)


def level(kind: Kind, turns: TurnValues) -> float | None:
    """The metric's value over the turns given; None where it is not finite or there is none."""
    if turns.n == 0:
        return None
    value = (
        float(weighted_quantile(turns.values, np.ones((1, turns.n)), 0.5)[0])
        if kind in MEDIANS
        else float(turns.values.mean())
    )
    return value if np.isfinite(value) else None


def estimate(
    kind: Kind, pairs: Pairs, weights: Floats | None = None, n_resamples: int = RESAMPLES
) -> Estimate | Bootstrap:
    """The difference second minus first with its error.

    Args:
        weights: [n_resamples, n_questions] from `resample_counts`, for medians; default drawn here.
    """
    first, second = pairs.first, pairs.second
    if kind in MEDIANS:
        counts = resample_counts(first.strata, n_resamples) if weights is None else weights
        made = _median_change if kind == "change" else _median_difference
        return made(first, second, counts)
    change = TurnValues(second.values - first.values, first.question, first.strata, pairs.n_missing)
    if kind == "share":
        observed = bounded_mean(change.sums() / change.counts(), change.strata, (-1.0, 1.0))
        return Estimate(float(change.values.mean()), observed.se, observed.df, observed.n_questions)
    return mean_over_turns(change.sums(), change.counts(), change.strata)


def _median_change(first: TurnValues, second: TurnValues, counts: Floats) -> Bootstrap:
    """Median of the turns' changes: what turns differ in cancels, and a few wild changes do not count.

    A turn that falls silent changes by infinity; one that is silent in both runs does not change.
    """
    both = np.isinf(first.values) & np.isinf(second.values)
    with np.errstate(invalid="ignore"):
        change = np.where(both, 0.0, second.values - first.values)
    one, rows = np.ones((1, first.n)), counts[:, first.question]
    value = float(weighted_quantile(change, one, 0.5)[0])
    return Bootstrap(value, np.sort(weighted_quantile(change, rows, 0.5)), first.n_questions)


def _median_difference(first: TurnValues, second: TurnValues, counts: Floats) -> Bootstrap:
    one, rows = np.ones((1, first.n)), counts[:, first.question]

    def change(weights: Floats) -> Floats:
        a = weighted_quantile(first.values, weights, 0.5)
        b = weighted_quantile(second.values, weights, 0.5)
        with np.errstate(invalid="ignore"):
            # Both medians among silent turns: no difference can be seen between them.
            return np.where(np.isinf(a) & np.isinf(b), 0.0, b - a)

    return Bootstrap(float(change(one)[0]), np.sort(change(rows)), first.n_questions)


def paired_difference(
    first: pd.DataFrame,
    second: pd.DataFrame,
    metric: str = "score",
    categories: tuple[str, ...] = (),
    confidence: float = CONFIDENCE,
) -> PairedDifference:
    """Compare two runs' tables in one metric, pair by pair.

    Raises:
        BadRun: no turn in common.
        UserError: no such metric.
    """
    chosen = metric_named(metric)
    pairs = pair(first, second, chosen, categories)
    a, b = level(chosen.kind, pairs.first), level(chosen.kind, pairs.second)
    difference = low = high = effect = None
    reason = ""
    if pairs.n == 0:
        reason = "no pair of turns has a value in both runs"
    elif a is None or b is None:
        reason = "not reached: half of the turns or more are silent"
    else:
        made = estimate(chosen.kind, pairs)
        difference = made.value
        if pairs.n_questions < MIN_QUESTIONS:
            reason = f"no interval: {pairs.n_questions} question(s), at least {MIN_QUESTIONS} are needed"
        else:
            low, high = (edge if np.isfinite(edge) else None for edge in made.bounds(confidence))
            effect = effect_size(pairs)
    return PairedDifference(
        metric=chosen.name,
        unit=chosen.unit,
        first=a,
        second=b,
        difference=difference,
        low=low,
        high=high,
        effect_size=effect,
        n=pairs.n,
        n_questions=pairs.n_questions,
        n_missing=pairs.n_missing,
        reason=reason,
    )


def effect_size(pairs: Pairs) -> float | None:
    """Cohen's d of the question means' differences; over finite pairs; None where they do not vary."""
    finite = np.isfinite(pairs.first.values) & np.isfinite(pairs.second.values)
    change = pairs.second.values[finite] - pairs.first.values[finite]
    question = pairs.first.question[finite]
    counts = np.bincount(question, minlength=pairs.n_questions)
    sums = np.bincount(question, weights=change, minlength=pairs.n_questions)
    means = sums[counts > 0] / counts[counts > 0]
    if len(means) < 2 or means.std(ddof=1) < 1e-12:
        return None
    return float(means.mean() / means.std(ddof=1))


def question_changes(first: pd.DataFrame, second: pd.DataFrame, metric: Metric) -> dict[str, float]:
    """Mean change of every question that both runs have a finite value of."""
    changes: dict[str, list[float]] = {}
    a = dict(zip(_keys(first), metric.read(first), strict=True))
    b = dict(zip(_keys(second), metric.read(second), strict=True))
    for key in a.keys() & b.keys():
        change = (
            float(b[key]) - float(a[key]) if np.isfinite(a[key]) and np.isfinite(b[key]) else float("nan")
        )
        if np.isfinite(change):
            changes.setdefault(key[0], []).append(change)
    return {question: float(np.mean(values)) for question, values in changes.items()}


def _keys(table: pd.DataFrame) -> list[tuple[str, int]]:
    return [(str(q), int(t)) for q, t in zip(table["question_id"], table["turn"], strict=True)]

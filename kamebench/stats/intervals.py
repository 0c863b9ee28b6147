"""Intervals over questions. The question is the unit: its turns are one conversation and not independent.

All arrays are one entry a question; `strata` holds the question's category. Sampling is stratified: the share
of each category is fixed by the task, so only the spread within categories counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Bools = NDArray[np.bool_]
Texts = NDArray[np.str_]
Method = Literal["skew-t", "t", "bca"]

MIN_QUESTIONS = 5
CONFIDENCE = 0.95
RESAMPLES = 10_000
SEED = 20_260_101
# The transformation's inverse is steep where k * t nears -1: beyond this it would only widen the interval, by
# any factor, and cover no more (docs/gates.md).
MAX_CORRECTION = 0.8


def t_quantile(probability: float, df: float) -> float:
    """Quantile of Student's t; of the normal distribution for infinite `df`."""
    return float(special.ndtri(probability) if np.isinf(df) else special.stdtrit(df, probability))


def t_share(t: float, df: float) -> float:
    """P(T <= t) of Student's t; of the normal distribution for infinite `df`."""
    return float(special.ndtr(t) if np.isinf(df) else special.stdtr(df, t))


@dataclass(frozen=True)
class Estimate:
    """A mean over questions: its standard error, the error's degrees of freedom, the questions' skewness."""

    value: float
    se: float
    df: float
    n_questions: int
    skewness: float = 0.0

    def bounds(self, confidence: float = CONFIDENCE) -> tuple[float, float]:
        """The t interval of the given two-sided confidence, in the unit of the value."""
        half = t_quantile((1 + confidence) / 2, self.df) * self.se if self.se > 0 else 0.0
        return self.value - half, self.value + half

    def skew_bounds(self, confidence: float = CONFIDENCE) -> tuple[float, float]:
        """The t interval after Hall's cubic transformation, which takes the skewness out of t.

        P. Hall, "On the removal of skewness by transformation", J. R. Statist. Soc. B 54 (1992). Equal to
        `bounds` for symmetric values; for skewed ones it holds the truth as often as it says (docs/gates.md).
        """
        quantile = t_quantile((1 + confidence) / 2, self.df)
        limit = MAX_CORRECTION / quantile
        k = float(np.clip(self.skewness / np.sqrt(self.n_questions), -limit, limit))
        if abs(k) < 1e-6 or self.se == 0:
            return self.bounds(confidence)
        edges = [3 / k * (float(np.cbrt(1 + k * (t - k / 6))) - 1) for t in (quantile, -quantile)]
        return self.value - edges[0] * self.se, self.value - edges[1] * self.se

    def p_above(self, limit: float) -> float:
        """One-sided p-value against the hypothesis that the true value is `limit` or less."""
        if self.se == 0:
            return 0.0 if self.value > limit else 1.0
        return t_share((limit - self.value) / self.se, self.df)

    def p_below(self, limit: float) -> float:
        """One-sided p-value against the hypothesis that the true value is `limit` or more."""
        if self.se == 0:
            return 0.0 if self.value < limit else 1.0
        return t_share((self.value - limit) / self.se, self.df)


def usable_strata(strata: Sequence[str]) -> Ints:
    """Stratum number of every question; all 0 where a category holds one question only (no spread in it)."""
    _, codes = np.unique(np.asarray(strata, dtype=str), return_inverse=True)
    codes = codes.astype(np.intp)
    return codes if len(codes) == 0 or np.bincount(codes).min() >= 2 else np.zeros_like(codes)


def mean_over_turns(sums: Floats, counts: Floats, strata: Sequence[str]) -> Estimate:
    """Mean over turns with the spread between questions.

    The estimator is the ratio of sums (Cochran, Sampling Techniques, 1977, ch. 6), linearised; with equal
    counts it is the mean of the question means. Degrees of freedom after Satterthwaite.

    Args:
        sums: [n_questions] sum of the turns' values of each question.
        counts: [n_questions] number of turns with a value, at least 1 each.
        strata: [n_questions] category of each question.

    Returns:
        The estimate; `se` is 0 for one question, which is why callers ask for MIN_QUESTIONS.
    """
    n = len(sums)
    value = float(sums.sum() / counts.sum())
    residuals = (sums - value * counts) / counts.mean()
    codes = usable_strata(strata)
    centred = residuals.copy()
    parts: list[tuple[float, int]] = []
    for code in np.unique(codes):
        inside = residuals[codes == code]
        centred[codes == code] -= inside.mean()
        if len(inside) > 1:
            parts.append((len(inside) * float(inside.var(ddof=1)), len(inside) - 1))
    total = sum(part for part, _ in parts)
    if total <= 1e-24 * max(1.0, value * value):
        return Estimate(value, 0.0, float(max(n - 1, 1)), n)
    df = total**2 / sum(part**2 / free for part, free in parts)
    skewness = float((centred**3).mean() / (centred**2).mean() ** 1.5)
    return Estimate(value, float(np.sqrt(total)) / n, df, n, skewness)


def mean(values: Floats, strata: Sequence[str]) -> Estimate:
    """Mean of one value a question [n_questions], stratified."""
    return mean_over_turns(values, np.ones_like(values), strata)


def bounded_mean(values: Floats, strata: Sequence[str], extremes: tuple[float, float]) -> Estimate:
    """Mean of a share or of a difference of shares, whose spread cannot be read from rare events.

    Two pseudo-questions' worth of `extremes` are added, half a question each, and one in the middle, as
    Agresti and Min (2005) do for paired shares: with 0 events in n questions the interval is not [0, 0] but
    about +-2/(n + 2), close to the exact bound of 0 events in 2n turns.
    The value reported stays the observed mean; the pseudo-questions move the error only.

    Args:
        values: [n_questions], within `extremes`.
        strata: [n_questions]; used for the observed part of the spread.
        extremes: smallest and largest possible value.
    """
    n = len(values)
    observed = mean(values, strata)
    low, high = extremes
    spread = observed.se**2 * n * n + 0.5 * (low - observed.value) ** 2 + 0.5 * (high - observed.value) ** 2
    return Estimate(observed.value, float(np.sqrt(spread)) / (n + 2), float("inf"), n)


def resample_counts(strata: Sequence[str], n_resamples: int = RESAMPLES, seed: int = SEED) -> Floats:
    """How often each resample draws each question: [n_resamples, n_questions], stratified, seeded."""
    codes = usable_strata(strata)
    rng = np.random.default_rng(seed)
    counts = np.zeros((n_resamples, len(codes)))
    for code in np.unique(codes):
        columns = np.flatnonzero(codes == code)
        size = len(columns)
        counts[:, columns] = rng.multinomial(size, np.full(size, 1 / size), size=n_resamples)
    return counts


def bca(
    values: Floats,
    strata: Sequence[str],
    confidence: float = CONFIDENCE,
    n_resamples: int = RESAMPLES,
    seed: int = SEED,
) -> tuple[Floats, Floats]:
    """BCa bootstrap interval of the mean (Efron 1987), by scipy; every metric sees the same resamples.

    Args:
        values: [n_questions] or [n_questions, n_metrics].
        strata: [n_questions].

    Returns:
        low and high, of shape [] or [n_metrics]; where a metric does not vary both are its mean.
    """
    columns = values.reshape(len(values), -1).T
    codes = usable_strata(strata)
    samples = tuple(np.ascontiguousarray(columns[:, codes == code]) for code in np.unique(codes))
    n = columns.shape[1]
    means = columns.mean(axis=1)
    low, high = means.copy(), means.copy()
    varies = sum(sample.var(axis=1) for sample in samples) > 0

    shares = [sample.shape[1] / n for sample in samples]

    def weighted(*parts: Any, axis: int = -1) -> Any:
        # The jackknife leaves one question out of one stratum: the strata's weights stay those of the task.
        return sum(part.mean(axis=axis) * share for part, share in zip(parts, shares, strict=True))

    if np.any(varies):
        result = stats.bootstrap(
            tuple(sample[varies] for sample in samples),
            weighted,
            n_resamples=n_resamples,
            batch=1000,
            vectorized=True,
            axis=-1,
            confidence_level=confidence,
            method="BCa",
            rng=np.random.default_rng(seed),
        )
        low[varies] = result.confidence_interval.low
        high[varies] = result.confidence_interval.high
    shape = values.shape[1:]
    return low.reshape(shape), high.reshape(shape)


def weighted_quantile(values: Floats, weights: Floats, share: float) -> Floats:
    """Quantile of `values` under each row of `weights`: averaged inverse of the distribution (type 2).

    With equal weights and share 0.5 it is the ordinary median. Infinite values are allowed.

    Args:
        values: [n], any order.
        weights: [rows, n], whole numbers of at least 0.
        share: between 0 and 1.

    Returns:
        [rows]
    """
    order = np.argsort(values, kind="stable")
    ranked = values[order]
    reached = np.cumsum(weights[:, order], axis=1)
    target = share * reached[:, -1:]
    last = len(values) - 1
    lower = np.minimum((reached < target - 1e-9).sum(axis=1), last)
    upper = np.minimum((reached <= target + 1e-9).sum(axis=1), last)
    return (ranked[lower] + ranked[upper]) / 2

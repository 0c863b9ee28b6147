"""Latency of a run: outcome shares, signed quantiles, the published convention, the response curve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kamebench.audio import SAMPLE_RATE
from kamebench.records import Aggregate
from kamebench.stats.aggregates import OVERALL, aggregate, describe, plain, share
from kamebench.stats.intervals import (
    CONFIDENCE,
    MIN_QUESTIONS,
    Bools,
    Floats,
    bounded_mean,
    mean_over_turns,
    resample_counts,
    weighted_quantile,
)
from kamebench.stats.turns import TurnValues, column, latencies, pick, shares, talk_over, texts

if TYPE_CHECKING:
    import pandas as pd

OUTCOMES = ("answered", "premature", "carry_over", "silent", "fault")
FRAME_MS = 1920 / SAMPLE_RATE * 1000
NEAR_ZERO_MS = 500.0
PUBLISHED = "median or mean of max(0, latency) over turns with a response: published convention (assumed)"


@dataclass(frozen=True)
class LatencySummary:
    """Everything said about the latency of a run.

    Attributes:
        n_turns: turns that the run holds.
        outcomes: outcome -> number of turns; all five outcomes.
        shares: outcome -> share, of turns without a fault; `fault`: of all turns.
        p50, p90, p95: quantiles of signed latency in ms. A silent turn counts as later than every response;
            a quantile that falls among them has no value and says so.
        clipped_median, clipped_mean: of max(0, latency) in ms, over turns with a response.
        within_frame, within_500_ms: share of responses nearer to the user's end than that.
        talk_over: mean share of the user's speech that the system talked over.
        backchannels: number in all turns.
        response_s: mean duration of a response in seconds.
        excluded: why a turn is in no latency figure -> number of turns.
    """

    n_turns: int
    outcomes: dict[str, int]
    shares: dict[str, Aggregate]
    p50: Aggregate
    p90: Aggregate
    p95: Aggregate
    clipped_median: Aggregate
    clipped_mean: Aggregate
    within_frame: Aggregate
    within_500_ms: Aggregate
    talk_over: Aggregate
    backchannels: int
    response_s: Aggregate
    excluded: dict[str, int]


class ResponseCurve(NamedTuple):
    """P(response starts within t of the user's end): Kaplan-Meier, with a band over questions.

    Attributes:
        t_ms: [n] times of responses, ascending; negative where the system began before the user's end.
        probability: [n] at and after each time, until the next.
        low, high: [n] 95 % pointwise bounds; NaN under five questions.
    """

    t_ms: Floats
    probability: Floats
    low: Floats
    high: Floats


def latency_summary(table: pd.DataFrame) -> LatencySummary:
    """Summarise the latency of all turns of a `Run.table()`."""
    values = latencies(table)
    timed = pick(table, values)
    responded = pick(table, np.where(np.isinf(values), np.nan, values))
    late = np.maximum(responded.values, 0.0)
    clipped = TurnValues(late, responded.question, responded.strata, responded.n_missing)
    outcome = texts(table, "outcome")
    counts = {name: int((outcome == name).sum()) for name in OUTCOMES}
    return LatencySummary(
        n_turns=len(table),
        outcomes=counts,
        shares={name: _outcome_share(table, name) for name in OUTCOMES},
        p50=quantile("latency_p50_ms", timed, 0.5),
        p90=quantile("latency_p90_ms", timed, 0.9),
        p95=quantile("latency_p95_ms", timed, 0.95),
        clipped_median=_published(quantile("latency_clipped_median_ms", clipped, 0.5)),
        clipped_mean=_published(aggregate("latency_clipped_mean_ms", OVERALL, clipped)),
        within_frame=_near("within_frame", responded, FRAME_MS),
        within_500_ms=_near("within_500_ms", responded, NEAR_ZERO_MS),
        talk_over=share("talk_over_share", OVERALL, pick(table, talk_over(table))),
        backchannels=int(column(table, "backchannels").sum()),
        response_s=aggregate("response_s", OVERALL, pick(table, column(table, "response_s"))),
        excluded=excluded(table),
    )


def excluded(table: pd.DataFrame) -> dict[str, int]:
    """Turns that are in no latency figure, by reason."""
    outcome = texts(table, "outcome")
    usable = np.asarray(table["pacing_usable"], dtype=bool) if len(table) else np.zeros(0, dtype=bool)
    named = np.isin(outcome, ("fault", "carry_over"))
    reasons = {
        "fault": int((outcome == "fault").sum()),
        "carry_over": int((outcome == "carry_over").sum()),
        "pacing": int((~usable & ~named).sum()),
    }
    return {reason: n for reason, n in reasons.items() if n}


def quantile(metric: str, turns: TurnValues, share_below: float) -> Aggregate:
    """A quantile over turns with Woodruff's interval over questions, stratified."""
    if turns.n == 0:
        return aggregate(metric, OVERALL, turns)
    value = float(weighted_quantile(turns.values, np.ones((1, turns.n)), share_below)[0])
    if not np.isfinite(value):
        n_silent = int(np.isinf(turns.values).sum())
        return Aggregate(
            metric=metric,
            group=OVERALL,
            n=turns.n,
            n_missing=turns.n_missing,
            value=None,
            reason=f"not reached: {n_silent} of {turns.n} turns are silent",
        )
    if turns.n_questions < MIN_QUESTIONS:
        return plain(metric, OVERALL, turns, value)
    low, high = woodruff(turns, share_below, value)
    among = "it falls among silent turns" if np.isinf(turns.values).any() else f"{turns.n} turns are too few"
    return Aggregate(
        metric=metric,
        group=OVERALL,
        n=turns.n,
        n_missing=turns.n_missing,
        value=value,
        low=low,
        high=high if np.isfinite(high) else None,
        method=describe("Woodruff", turns),
        reason="" if np.isfinite(high) else f"upper bound not reached: {among}",
    )


def woodruff(turns: TurnValues, share_below: float, value: float) -> tuple[float, float]:
    """Interval of a quantile: that of the share of turns at or below it, read back from the distribution.

    R. S. Woodruff, "Confidence intervals for medians and other position measures", JASA 47 (1952). Without
    resampling, and closer to its confidence than the percentile bootstrap at 30 questions (docs/gates.md).
    The upper bound is infinite where too few turns were seen to bound the quantile: p95 needs over 70.
    """
    below = TurnValues((turns.values <= value).astype(float), turns.question, turns.strata, 0)
    sums, counts = below.sums(), below.counts()
    spread = mean_over_turns(sums, counts, below.strata)
    # Far out all turns may lie below: the share's own spread is 0 then, though the sample is not the truth.
    rare = bounded_mean(sums / counts, below.strata, (0.0, 1.0))
    half = max(e.bounds(CONFIDENCE)[1] - e.value for e in (spread, rare))
    ranked = np.sort(turns.values)
    first = int(np.floor(max(share_below - half, 0.0) * turns.n))
    low = float(ranked[min(first, turns.n - 1)])
    if share_below + half >= 1:
        return low, float("inf")
    return low, float(ranked[max(int(np.ceil((share_below + half) * turns.n)) - 1, 0)])


def response_curve(table: pd.DataFrame) -> ResponseCurve:
    """Kaplan-Meier curve of the time to the response, `silent` turns censored at the end of their window.

    A truncated turn's onset is observed; a premature one is an event at a negative time. Turns that faulted,
    carried over or were paced too late are left out (`excluded` counts them).
    """
    values = latencies(table)
    silent = np.isinf(values)
    ends = column(table, "censored_at_ms")
    # A silent turn without a recorded window saw at least as far as the latest response.
    far = np.nanmax(np.where(np.isfinite(values), values, -np.inf), initial=0.0)
    times = np.where(silent, np.where(np.isnan(ends), far, ends), values)
    turns = pick(table, times)
    happened = ~silent[~np.isnan(times)]
    none = np.zeros(0)
    if turns.n == 0 or not happened.any():
        return ResponseCurve(none, none, none, none)
    t_ms, probability = kaplan_meier(turns.values, happened, np.ones((1, turns.n)))
    if turns.n_questions < MIN_QUESTIONS:
        unknown = np.full(len(t_ms), np.nan)
        return ResponseCurve(t_ms, probability[0], unknown, unknown)
    weights = resample_counts(turns.strata, 2000)[:, turns.question]
    _, drawn = kaplan_meier(turns.values, happened, weights)
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(drawn, (tail, 1 - tail), axis=0)
    return ResponseCurve(t_ms, probability[0], low, high)


def kaplan_meier(times: Floats, happened: Bools, weights: Floats) -> tuple[Floats, Floats]:
    """Product-limit estimate of the distribution (Kaplan and Meier 1958) under each row of weights.

    Own code because libraries weigh one sample, and the band needs every resample of questions at once.

    Args:
        times: [n] of the event or the censoring.
        happened: [n] bool, False where censored; a tie counts the event first.
        weights: [rows, n]

    Returns:
        t: [m] distinct event times, ascending; P(T <= t): [rows, m].
    """
    t: Floats = np.unique(times[happened])
    events = np.stack([weights[:, happened & (times == at)].sum(axis=1) for at in t], axis=1)
    at_risk = np.stack([weights[:, times >= at].sum(axis=1) for at in t], axis=1)
    hazard = np.divide(events, at_risk, out=np.zeros_like(events), where=at_risk > 0)
    probability: Floats = 1 - np.cumprod(1 - hazard, axis=1, dtype=np.float64)
    return t, probability


def _outcome_share(table: pd.DataFrame, outcome: str) -> Aggregate:
    if outcome == "fault":
        values = (texts(table, "outcome") == "fault").astype(float)
        return share("fault_share", OVERALL, pick(table, values))
    return share(f"{outcome}_share", OVERALL, pick(table, shares(table, outcome)))


def _near(metric: str, responded: TurnValues, limit_ms: float) -> Aggregate:
    inside = (np.abs(responded.values) <= limit_ms).astype(float)
    return share(
        metric, OVERALL, TurnValues(inside, responded.question, responded.strata, responded.n_missing)
    )


def _published(made: Aggregate) -> Aggregate:
    return made.model_copy(update={"method": f"{PUBLISHED}; {made.method}".rstrip("; ")})

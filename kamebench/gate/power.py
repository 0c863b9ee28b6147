"""How many questions a margin needs, from the spread of stored runs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

from kamebench.errors import BadRun
from kamebench.gate.decision import comparable_or_raise
from kamebench.stats.intervals import MIN_QUESTIONS, Floats, t_quantile
from kamebench.stats.paired import MEDIANS, Bootstrap, Pairs, estimate, metric_named, pair
from kamebench.stats.snapshot import Snapshot, joined
from kamebench.stats.turns import TurnValues, pick

LEVEL = 0.025
POWERS = (0.8, 0.9, 0.95)


@dataclass(frozen=True)
class Need:
    """What one margin needs.

    Attributes:
        spread: standard deviation of the difference of two runs' question values, in the metric's unit.
        source: where the spread comes from.
        questions: power -> questions with which two equal systems pass with that power.
        repeats: power -> runs of each side to average, at the present number of questions.
    """

    metric: str
    unit: str
    margin: float
    spread: float
    source: str
    n_questions: int
    questions: dict[float, int]
    repeats: dict[float, int]


def need(runs: list[Snapshot], metric_name: str, margin: float) -> Need:
    """Questions and repeats that a margin needs.

    With two runs of one system the spread is that of their paired difference. With one run its own spread
    between questions stands in, as if the two runs were independent: an upper bound, since pairing takes away
    what is due to the questions.

    Raises:
        BadRun: too few questions, or runs that cannot be compared.
    """
    metric = metric_named(metric_name)
    if len(runs) > 1:
        comparable_or_raise(runs[1:2], runs[:1])
        names = [f"{run.system} + {run.backend}" if run.backend else run.system for run in runs]
        if names[0] != names[1]:
            raise BadRun(
                f"power measures how repeats of one system differ, and these are {names[0]} and {names[1]}. "
                "Give two runs of one system, or one run for an upper bound."
            )
        pairs = pair(runs[0].table(), runs[1].table(), metric)
        source = "paired difference of the two runs"
    else:
        table = joined(runs)
        turns = pick(table, metric.read(table))
        pairs = Pairs(turns, turns, turns.n_missing, turns.n_missing, turns.n_missing)
        source = "one run's spread, as if unpaired: an upper bound"
    n = pairs.n_questions
    if n < MIN_QUESTIONS:
        raise BadRun(
            f"{metric_name}: {n} questions with a value, at least {MIN_QUESTIONS} are needed for a spread."
        )
    if len(runs) > 1:
        spread = _spread(estimate(metric.kind, pairs).se, n)
    else:
        spread = float(np.sqrt(2)) * _own_spread(metric.kind, pairs.first)
    questions = {power: max(MIN_QUESTIONS, _questions(spread, margin, power)) for power in POWERS}
    repeats = {power: max(1, int(np.ceil(_questions(spread, margin, power) / n))) for power in POWERS}
    return Need(metric.name, metric.unit, margin, spread, source, n, questions, repeats)


def _own_spread(kind: str, turns: TurnValues) -> float:
    """Spread of one run: the error of its mean or median, scaled to one question."""
    zero: Floats = np.zeros_like(turns.values)
    against_nothing = Pairs(TurnValues(zero, turns.question, turns.strata, 0), turns, 0, 0, 0)
    made = estimate("median" if kind in MEDIANS else "mean", against_nothing)
    if isinstance(made, Bootstrap) and not np.isfinite(made.value):
        raise BadRun("latency_median: half of the turns or more are silent; there is no median to plan with.")
    return _spread(made.se, turns.n_questions)


def _spread(se: float, n_questions: int) -> float:
    return se * float(np.sqrt(n_questions))


def _questions(spread: float, margin: float, power: float) -> int:
    """n with (t + z) * spread / sqrt(n) <= margin; t depends on n, so step until it fits."""
    z = float(special.ndtri(power))
    n = 2
    for _ in range(100):
        needed = int(np.ceil(((t_quantile(1 - LEVEL, max(n - 1, 1)) + z) * spread / margin) ** 2))
        needed = max(needed, 2)
        if abs(needed - n) <= 1:
            return max(needed, n)
        n = (n + needed + 1) // 2
    return n

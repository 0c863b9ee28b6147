"""Rules -> pass, regression or inconclusive: a non-inferiority test with three outcomes.

The loss is how much worse the gated run is than its baseline, on the turns both have. A rule with margin m
says *pass* where the interval of the loss lies below m, *regression* where it lies above 0, the estimate
exceeds m and the p-value stands after Holm's correction over all rules, and *inconclusive* otherwise. A gate
passes when every rule does, which needs no correction (an intersection-union test: Berger 1982).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from scipy import special

from kamebench.errors import BadRun
from kamebench.gate.rules import OnInconclusive, Rule, Rules
from kamebench.stats.comparable import differences, fatal
from kamebench.stats.intervals import Estimate, t_quantile
from kamebench.stats.paired import Bootstrap, Pairs, estimate, level, pair
from kamebench.stats.snapshot import Snapshot, joined

Outcome = Literal["pass", "regression", "inconclusive"]

POWER = 0.8
EXIT_CODES: dict[Outcome, int] = {"pass": 0, "regression": 1, "inconclusive": 3}


@dataclass(frozen=True)
class RuleResult:
    """What one rule said and on which numbers. `low` and `high` bound the loss; None where there are none.

    Attributes:
        mde: smallest true loss that would be called a regression with 80 % power at this n.
        questions_needed: questions at which an equal system would pass with 90 % power, at this spread.
        tolerated: inconclusive, and the rules say that this does not stop the gate.
    """

    name: str
    metric: str
    unit: str
    outcome: Outcome
    reason: str
    margin: float | None = None
    baseline: float | None = None
    candidate: float | None = None
    loss: float | None = None
    low: float | None = None
    high: float | None = None
    p_regression: float | None = None
    p_regression_holm: float | None = None
    p_within_margin: float | None = None
    mde: float | None = None
    questions_needed: int | None = None
    n: int = 0
    n_questions: int = 0
    n_missing: int = 0
    tolerated: bool = False


@dataclass(frozen=True)
class GateResult:
    """The gate's answer. `notes` tell what differs between the runs beside their results."""

    outcome: Outcome
    candidate: str
    baseline: str
    confidence: float
    results: tuple[RuleResult, ...]
    notes: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.outcome]


@dataclass(frozen=True)
class RuleLoss:
    """The loss of one rule with its error, before it is judged."""

    rule: Rule
    loss: Estimate | Bootstrap
    margin: float
    facts: RuleResult = field(repr=False)


def gate(candidate: Sequence[Snapshot], baseline: Sequence[Snapshot], rules: Rules) -> GateResult:
    """Judge a run, or several repeats of it, against a baseline.

    Raises:
        BadRun: the runs cannot be compared (names what differs), or share no turn.
    """
    notes = comparable_or_raise(candidate, baseline)
    same = _recordings(candidate) == _recordings(baseline)
    if same:
        notes = ("the run and its baseline are the same recording: no loss by construction", *notes)
    first, second = joined(baseline), joined(candidate)
    tested = [
        _test(rule, pair(first, second, rule.resolved(), rule.categories), same) for rule in rules.rules
    ]
    for_all = rules.inconclusive
    judged = judge(tested, rules.confidence)
    tolerant = [
        replace(result, tolerated=_tolerates(result, rule.inconclusive or for_all))
        for result, rule in zip(judged, rules.rules, strict=True)
    ]
    results = [*tolerant, _faults(candidate, rules)]
    return GateResult(
        outcome=overall(results),
        candidate=", ".join(snapshot.title for snapshot in candidate),
        baseline=", ".join(snapshot.title for snapshot in baseline),
        confidence=rules.confidence,
        results=tuple(results),
        notes=notes,
    )


def comparable_or_raise(candidate: Sequence[Snapshot], baseline: Sequence[Snapshot]) -> tuple[str, ...]:
    """Notes on harmless differences; raises BadRun on the first pair of runs with others."""
    reference = baseline[0]
    notes: dict[str, None] = {}
    for snapshot in (*candidate, *baseline[1:]):
        found = differences(reference, snapshot)
        if stops := fatal(found):
            raise BadRun(
                f"{snapshot.title} cannot be gated against {reference.title}: "
                + "; ".join(str(difference) for difference in stops)
                + ". Run both alike, or set a new baseline: kamebench baseline set RUN"
            )
        if set(reference.questions).isdisjoint(snapshot.questions):
            raise BadRun(
                f"{snapshot.title} and {reference.title} share no question, no pairs: "
                f"{len(snapshot.questions)} and {len(reference.questions)} questions. "
                "Run the baseline's questions."
            )
        if set(reference.questions) != set(snapshot.questions):
            mine, theirs = set(snapshot.questions), set(reference.questions)
            raise BadRun(
                f"{snapshot.title} asked other questions than {reference.title}: only the run "
                f"{_some(mine - theirs)}, only the baseline {_some(theirs - mine)}. "
                "Run the same questions, or set a new baseline."
            )
        notes.update(dict.fromkeys(str(difference) for difference in found))
    for name in ("system", "backend"):
        pairs = {str(getattr(s, name)) for s in baseline}, {str(getattr(s, name)) for s in candidate}
        if pairs[0] != pairs[1]:
            notes[f"{name}: {', '.join(sorted(pairs[0]))} against {', '.join(sorted(pairs[1]))}"] = None
    return tuple(notes)


def _some(questions: set[str], shown: int = 5) -> str:
    more = f" and {len(questions) - shown} more" if len(questions) > shown else ""
    return ", ".join(sorted(questions)[:shown]) + more or "none"


def _recordings(snapshots: Sequence[Snapshot]) -> list[str]:
    return sorted(snapshot.model_dump_json() for snapshot in snapshots)


def _test(rule: Rule, pairs: Pairs, same: bool) -> RuleLoss | RuleResult:
    """The rule's loss with its error, or the reason why there is none."""
    metric = rule.resolved()
    before, after = level(metric.kind, pairs.first), level(metric.kind, pairs.second)
    facts = RuleResult(
        name=rule.name,
        metric=metric.name,
        unit=metric.unit,
        outcome="inconclusive",
        reason="",
        margin=rule.margin,
        baseline=before,
        candidate=after,
        n=pairs.n,
        n_questions=pairs.n_questions,
        n_missing=pairs.n_missing,
    )
    if pairs.n == 0:
        return replace(facts, reason="no pair of turns has a value in both runs")
    if same:
        return replace(facts, outcome="pass", loss=0.0, reason="the same recording: no loss by construction")
    total = pairs.n + pairs.n_missing
    if pairs.n_missing > rule.max_missing_share * total:
        return replace(
            facts,
            reason=f"{pairs.n_missing} of {total} turns have no value in both runs, "
            f"limit {rule.max_missing_share:.0%} "
            f"(baseline lacks {pairs.n_missing_first}, run {pairs.n_missing_second})",
        )
    if pairs.n_questions < rule.min_questions:
        return replace(
            facts, reason=f"{pairs.n_questions} questions, at least {rule.min_questions} are needed"
        )
    margin = rule.margin
    if rule.margin_relative is not None:
        if before is None or before == 0:
            return replace(
                facts, reason=f"a relative margin needs a baseline value other than 0, it is {before}"
            )
        margin = rule.margin_relative * abs(before)
    assert margin is not None
    loss = estimate(metric.kind, pairs.swapped() if metric.better > 0 else pairs)
    return RuleLoss(rule, loss, margin, replace(facts, margin=margin))


def judge(tested: Sequence[RuleLoss | RuleResult], confidence: float) -> list[RuleResult]:
    """Three outcomes for each rule, regressions corrected over all rules that could be tested."""
    level_each = (1 - confidence) / 2
    able = [item for item in tested if isinstance(item, RuleLoss)]
    adjusted = iter(holm([item.loss.p_above(0.0) for item in able]))
    return [
        _judge_one(item, next(adjusted), level_each, len(able)) if isinstance(item, RuleLoss) else item
        for item in tested
    ]


def _tolerates(result: RuleResult, on_inconclusive: OnInconclusive) -> bool:
    """Rules may let doubt pass, never a complete lack of data."""
    return result.outcome == "inconclusive" and on_inconclusive == "pass" and result.n > 0


def _judge_one(item: RuleLoss, p_holm: float, level_each: float, n_rules: int) -> RuleResult:
    loss, margin = item.loss, item.margin
    low, high = loss.bounds(1 - 2 * level_each)
    p_within = loss.p_below(margin)
    outcome: Outcome = "inconclusive"
    if high < margin and p_within < level_each:
        outcome, reason = "pass", "the loss lies below the margin"
    elif low > 0 and loss.value > margin and p_holm < level_each:
        outcome, reason = "regression", "the loss is real and exceeds the margin"
    elif low > 0 and loss.value > margin:
        reason = "the loss exceeds the margin, but not after correction for the number of rules"
    elif high >= margin and low <= 0:
        reason = "the interval spans both no loss and the margin: too few questions for this spread"
    else:
        reason = "a loss that may or may not exceed the margin"
    return replace(
        item.facts,
        outcome=outcome,
        reason=reason,
        loss=_finite(loss.value),
        low=_finite(low),
        high=_finite(high),
        p_regression=loss.p_above(0.0),
        p_regression_holm=p_holm,
        p_within_margin=p_within,
        mde=minimum_detectable(loss, margin, level_each / max(n_rules, 1)),
        questions_needed=questions_needed(loss, margin, level_each),
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjusted p-values (1979), in the order given."""
    order = np.argsort(p_values, kind="stable")
    adjusted = np.zeros(len(p_values))
    largest = 0.0
    for rank, index in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = largest
    return adjusted.tolist()


def minimum_detectable(loss: Estimate | Bootstrap, margin: float, level_each: float) -> float:
    """Smallest true loss that is called a regression with 80 % power, in the metric's unit."""
    if loss.se == 0:
        return margin
    power, quantile = float(special.ndtri(POWER)), t_quantile(1 - level_each, loss.df)
    return max(margin + power * loss.se, (quantile + power) * loss.se)


def questions_needed(
    loss: Estimate | Bootstrap, margin: float, level_each: float = 0.025, power: float = 0.9
) -> int:
    """Questions at which an equal system passes with the given power, at the spread seen."""
    needed = (special.ndtri(1 - level_each) + special.ndtri(power)) * loss.se / margin
    return int(np.ceil(loss.n_questions * float(needed) ** 2))


def _faults(candidate: Sequence[Snapshot], rules: Rules) -> RuleResult:
    """Too many faults: the run says too little about the system to be judged."""
    turns = [turn for snapshot in candidate for turn in snapshot.turns]
    faulted = [turn.fault or "unknown" for turn in turns if turn.outcome == "fault"]
    share = len(faulted) / max(len(turns), 1)
    within = share <= rules.max_fault_share
    parties = ", ".join(f"{faulted.count(party)} {party}" for party in sorted(set(faulted)))
    return RuleResult(
        name="faults",
        metric="fault_share",
        unit="share",
        outcome="pass" if within else "inconclusive",
        reason=f"{len(faulted)} of {len(turns)} turns faulted{f' ({parties})' if parties else ''}, "
        f"limit {rules.max_fault_share:.0%}",
        margin=rules.max_fault_share,
        candidate=share,
        n=len(turns),
        n_questions=len({turn.question_id for turn in turns}),
    )


def overall(results: Sequence[RuleResult]) -> Outcome:
    """One regression makes a regression; everything passed or tolerated makes a pass."""
    if any(result.outcome == "regression" for result in results):
        return "regression"
    if all(result.outcome == "pass" or result.tolerated for result in results):
        return "pass"
    return "inconclusive"


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None

"""From a run's table (one row a turn) to arrays by question: which turns count for what, and why not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kamebench.errors import BadRun
from kamebench.stats.intervals import Floats, Ints, Texts

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class TurnValues:
    """Values of one metric, one entry a turn that has one.

    Attributes:
        values: [n]
        question: [n] number of the question of each turn, counting only questions with a value.
        strata: [n_questions] category of each question.
        n_missing: turns without a value.
    """

    values: Floats
    question: Ints
    strata: tuple[str, ...]
    n_missing: int

    @property
    def n(self) -> int:
        return len(self.values)

    @property
    def n_questions(self) -> int:
        return len(self.strata)

    def sums(self) -> Floats:
        return np.bincount(self.question, weights=self.values, minlength=self.n_questions).astype(np.float64)

    def counts(self) -> Floats:
        return np.bincount(self.question, minlength=self.n_questions).astype(float)


def column(table: pd.DataFrame, name: str) -> Floats:
    """A numeric column, absent values as NaN.

    Raises:
        BadRun: an infinite value, which no measure writes.
    """
    values = np.asarray(table[name], dtype=float) if len(table) else np.zeros(0)
    if np.isinf(values).any():
        raise BadRun(
            f"{name}: holds an infinite value in {int(np.isinf(values).sum())} turn(s). Measure again."
        )
    return values


def texts(table: pd.DataFrame, name: str) -> Texts:
    return np.asarray(table[name], dtype=str) if len(table) else np.zeros(0, dtype=str)


def pick(table: pd.DataFrame, values: Floats) -> TurnValues:
    """The turns whose value is a number, grouped by question in the table's order."""
    has = ~np.isnan(values)
    questions = texts(table, "question_id")[has]
    categories = texts(table, "category")[has]
    number: dict[str, int] = {}
    strata: list[str] = []
    for question, category in zip(questions, categories, strict=True):
        if question not in number:
            number[str(question)] = len(number)
            strata.append(str(category))
    codes = np.array([number[str(question)] for question in questions], dtype=np.intp)
    return TurnValues(values[has], codes, tuple(strata), int((~has).sum()))


def latencies(table: pd.DataFrame) -> Floats:
    """Signed latency of every turn in ms: infinite where `silent`, NaN where it is unknown.

    A silent turn is later than every response within its window. Unknown: `fault`, `carry_over` (the system
    never fell silent, so there is no start to time) and turns whose pacing was too late to use.
    """
    values = column(table, "latency_ms")
    outcome = texts(table, "outcome")
    responded = np.isin(outcome, ("answered", "premature"))
    values = np.where(responded, values, np.where(outcome == "silent", np.inf, np.nan))
    usable = np.asarray(table["pacing_usable"], dtype=bool) if len(table) else np.zeros(0, dtype=bool)
    return np.where(usable, values, np.nan)


def shares(table: pd.DataFrame, *outcomes: str) -> Floats:
    """1 where the outcome is one of those given, 0 where it is another, NaN where the turn faulted."""
    outcome = texts(table, "outcome")
    return np.where(outcome == "fault", np.nan, np.isin(outcome, outcomes).astype(float))


def talk_over(table: pd.DataFrame) -> Floats:
    """Share of the user's speech talked over; 0 where the system was silent and nothing was measured."""
    values = column(table, "talk_over_share")
    return np.where(np.isnan(values) & (texts(table, "outcome") == "silent"), 0.0, values)

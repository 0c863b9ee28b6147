"""The rules of a gate, from TOML or the defaults.

confidence = 0.95
max_fault_share = 0.05

[[rule]]
metric = "score"
margin = 0.5
categories = ["reasoning"]
inconclusive = "pass"
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import ConfigDict, Field, ValidationError, field_validator, model_validator

from kamebench.errors import BadConfig, UserError
from kamebench.records import Record
from kamebench.stats.intervals import MIN_QUESTIONS
from kamebench.stats.paired import Metric, metric_named

OnInconclusive = Literal["fail", "pass"]


class Rule(Record):
    """One metric that must not get worse by `margin` or more."""

    metric: str
    direction: Literal["higher", "lower"] | None = Field(
        default=None, description="which way is better; default the metric's own"
    )
    margin: float | None = Field(default=None, gt=0, description="in the metric's unit")
    margin_relative: float | None = Field(
        default=None, gt=0, description="as a share of the baseline's value"
    )
    min_questions: int = Field(default=10, ge=MIN_QUESTIONS)
    max_missing_share: float = Field(default=0.1, ge=0, lt=1, description="turns without a pair")
    categories: tuple[str, ...] = ()
    inconclusive: OnInconclusive | None = Field(default=None, description="default that of the whole file")

    @field_validator("metric")
    @classmethod
    def _known(cls, value: str) -> str:
        try:
            metric_named(value)
        except UserError as error:
            raise ValueError(str(error)) from None
        return value

    @model_validator(mode="after")
    def _one_margin(self) -> Self:
        if (self.margin is None) == (self.margin_relative is None):
            raise ValueError("give either margin or margin_relative")
        return self

    @property
    def name(self) -> str:
        return self.metric + (f" ({', '.join(self.categories)})" if self.categories else "")

    def resolved(self) -> Metric:
        """The metric, with the rule's direction where it sets one."""
        metric = metric_named(self.metric)
        if self.direction is None:
            return metric
        better: Literal[1, -1] = 1 if self.direction == "higher" else -1
        return Metric(metric.name, metric.unit, better, metric.kind, metric.read)


class Rules(Record):
    """A whole rules file."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, populate_by_name=True)

    confidence: float = Field(default=0.95, gt=0.5, lt=1, description="two-sided, of every interval")
    max_fault_share: float = Field(default=0.05, ge=0, lt=1, description="of the turns of the gated run")
    inconclusive: OnInconclusive = Field(default="fail", description="what an inconclusive rule means")
    rules: tuple[Rule, ...] = Field(alias="rule", min_length=1)

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        names = [rule.name for rule in self.rules]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"more than one rule for {', '.join(twice)}")
        return self


# Chosen with benchmarks/gate_power.py; docs/gates.md holds the table.
DEFAULT_RULES = Rules(
    rule=(
        Rule(metric="score", margin=0.5),
        Rule(metric="latency_change", margin=120.0),
        Rule(metric="silent_share", margin=0.15),
        Rule(metric="talk_over_share", margin=0.15),
    )
)


def load_rules(path: Path | None) -> Rules:
    """The rules of a file, or the defaults.

    Raises:
        BadConfig: unreadable, not TOML, or with a field that does not belong; names the field.
    """
    if path is None:
        return DEFAULT_RULES
    try:
        raw: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadConfig(
            f"{path}: cannot be read as rules ({error}). See docs/gates.md for the format."
        ) from None
    try:
        return Rules.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise BadConfig(f"{path}: {where}: {first['msg']}. See docs/gates.md for the format.") from None

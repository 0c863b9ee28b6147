"""How often the gate cries wolf, lets equal systems pass and catches planted losses.

    python benchmarks/gate_power.py [--gates 1000] [--json FILE]

Every gate is decided by the code that decides real ones (`estimate`, `judge`); only files are left out. A run
asks n questions of two turns in three categories. `sd` is the standard deviation of the difference of two
equal runs' question scores: 0 stands for cassettes, 1 to 1.5 for a sampled back-end and a judging model.

Model of a turn: quality ~ N(6, 1.5) is the question's, each run adds N(0, sd), scores are rounded to 1..10;
latency is log-normal (median 900 ms, between turns 30 %), each run adds N(0, 150 ms x sd), never under 20 ms
of jitter; 2 % of turns are silent; 10 % are talked over by up to half. At sd 0 silence and talk-over repeat.
What silence does to the score is part of its sd.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from kamebench.gate.decision import RuleLoss, RuleResult, judge, overall
from kamebench.gate.rules import DEFAULT_RULES, Rule
from kamebench.stats.intervals import Floats, resample_counts
from kamebench.stats.paired import Pairs, estimate
from kamebench.stats.turns import TurnValues

SDS, SIZES = (0.0, 0.5, 1.0, 1.5), (30, 60)
SCORE_MARGINS, LATENCY_MARGINS_MS = (0.3, 0.5, 0.75, 1.0), (80.0, 120.0, 160.0)
TURNS, RESAMPLES = 2, 1000
N_DEFAULT = len(DEFAULT_RULES.rules)
OTHER_LATENCY = Rule(metric="latency_median", margin=120.0)
LATENCY_SD_MS, JITTER_MS = 150.0, 20.0


@dataclass(frozen=True)
class Scenario:
    name: str
    score_drop: float = 0.0
    late_ms: float = 0.0


SCENARIOS = (Scenario("equal"), Scenario("score -0.5", score_drop=0.5), Scenario("+160 ms", late_ms=160.0))


class Simulation:
    """Gates at one size: the questions' layout and the bootstrap's weights are made once."""

    def __init__(self, n_questions: int, sd: float, rng: np.random.Generator) -> None:
        self.n, self.sd, self.rng = n_questions, sd, rng
        self.strata = tuple(("reasoning", "stem", "humanities")[i % 3] for i in range(n_questions))
        self.question = np.repeat(np.arange(n_questions), TURNS)
        self.weights = resample_counts(self.strata, RESAMPLES)

    def pairs(self, first: Floats, second: Floats) -> Pairs:
        a = TurnValues(first, self.question, self.strata, 0)
        b = TurnValues(second, self.question, self.strata, 0)
        return Pairs(a, b, 0, 0, 0)

    def runs(self, scenario: Scenario) -> dict[str, tuple[Floats, Floats]]:
        """Metric -> values of the baseline and of the gated run, one a turn."""
        rng, size = self.rng, self.n * TURNS
        quality = rng.normal(6, 1.5, size)
        latency = 900 * np.exp(rng.normal(0, 0.3, size))
        silent, over = rng.random(size) < 0.02, np.where(rng.random(size) < 0.1, rng.random(size) / 2, 0.0)
        made: dict[str, list[Floats]] = {name: [] for name in ("score", "late", "silent", "over")}
        for drop, late in ((0.0, 0.0), (scenario.score_drop, scenario.late_ms)):
            if self.sd > 0:
                silent = rng.random(size) < 0.02
                over = np.where(rng.random(size) < 0.1, rng.random(size) / 2, 0.0)
            score = np.clip(np.round(quality - drop + rng.normal(0, 1, size) * self.sd), 1, 10)
            if self.sd == 0 and drop:
                # Rounding would hide a drop of less than a point: let it hit a share of the turns instead.
                score = np.clip(np.round(quality) - (rng.random(size) < drop), 1, 10)
            noise = rng.normal(0, max(JITTER_MS, LATENCY_SD_MS * self.sd), size)
            made["score"].append(score)
            made["late"].append(np.where(silent, np.inf, latency + late + noise))
            made["silent"].append(silent.astype(float))
            made["over"].append(over)
        names = {
            "score": "score",
            "late": "latency_change",
            "silent": "silent_share",
            "over": "talk_over_share",
        }
        runs = {names[key]: (values[0], values[1]) for key, values in made.items()}
        return runs | {"latency_median": runs["latency_change"]}

    def tested(self, scenario: Scenario) -> list[RuleLoss]:
        runs = self.runs(scenario)
        made: list[RuleLoss] = []
        for rule in (*DEFAULT_RULES.rules, OTHER_LATENCY):
            metric = rule.resolved()
            pairs = self.pairs(*runs[rule.metric])
            loss = estimate(metric.kind, pairs.swapped() if metric.better > 0 else pairs, self.weights)
            facts = RuleResult(rule.name, metric.name, metric.unit, "inconclusive", "", n_questions=self.n)
            assert rule.margin is not None
            made.append(RuleLoss(rule, loss, rule.margin, facts))
        return made


def simulate(gates: int, seed: int) -> list[dict[str, object]]:
    """One row a size, sd and scenario: shares of outcomes of the gate, and of its rules by margin."""
    rows: list[dict[str, object]] = []
    for n in SIZES:
        for sd in SDS:
            simulation = Simulation(n, sd, np.random.default_rng(seed))
            for scenario in SCENARIOS:
                outcomes: list[str] = []
                by_margin: dict[str, list[str]] = {}
                for _ in range(gates):
                    tested = simulation.tested(scenario)
                    outcomes.append(overall(judge(tested[:N_DEFAULT], DEFAULT_RULES.confidence)))
                    for name, outcome in at_margins(tested).items():
                        by_margin.setdefault(name, []).append(outcome)
                row: dict[str, object] = {"questions": n, "sd": sd, "scenario": scenario.name}
                row |= {f"gate {name}": outcomes.count(name) / gates for name in ("pass", "regression")}
                for name, found in by_margin.items():
                    row |= {f"{name} {o}": found.count(o) / gates for o in ("pass", "regression")}
                rows.append(row)
    return rows


def at_margins(tested: list[RuleLoss]) -> dict[str, str]:
    """What the rules on score and latency would say at other margins, the other rules as they are."""
    found: dict[str, str] = {}
    for index, margins in ((0, SCORE_MARGINS), (1, LATENCY_MARGINS_MS), (N_DEFAULT, LATENCY_MARGINS_MS)):
        slot = min(index, 1)
        for margin in margins:
            changed = list(tested[:N_DEFAULT])
            changed[slot] = replace(tested[index], margin=margin)
            name = f"{tested[index].rule.metric} {margin:g}"
            found[name] = judge(changed, DEFAULT_RULES.confidence)[slot].outcome
    return found


def show(rows: list[dict[str, object]]) -> None:
    """Two Markdown tables: the gate with default rules, and single rules by margin."""
    print("| questions | sd | true loss | pass | regression | inconclusive |\n|---:|---:|---|---:|---:|---:|")
    for row in rows:
        good, bad = float(str(row["gate pass"])), float(str(row["gate regression"]))
        cells = [f"{part:.1%}" for part in (good, bad, 1 - good - bad)]
        print(f"| {row['questions']} | {row['sd']} | {row['scenario']} | " + " | ".join(cells) + " |")
    for metric, margins, planted in (
        ("score", SCORE_MARGINS, "score -0.5"),
        ("latency_change", LATENCY_MARGINS_MS, "+160 ms"),
        ("latency_median", LATENCY_MARGINS_MS, "+160 ms"),
    ):
        print(
            f"\nRule `{metric}`: equal systems pass / {planted} passes / {planted} is called a regression\n"
        )
        print("| questions | sd | " + " | ".join(f"margin {m:g}" for m in margins) + " |")
        print("|---:|---:|" + "---|" * len(margins))
        for n in SIZES:
            for sd in SDS:
                here = {str(r["scenario"]): r for r in rows if r["questions"] == n and r["sd"] == sd}
                equal, lost = here["equal"], here[planted]
                cells = [
                    f"{equal[f'{metric} {m:g} pass']:.0%} / {lost[f'{metric} {m:g} pass']:.1%} / "
                    f"{lost[f'{metric} {m:g} regression']:.0%}"
                    for m in margins
                ]
                print(f"| {n} | {sd} | " + " | ".join(cells) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gates", type=int, default=1000, help="gates of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the rows here too")
    arguments = parser.parse_args()
    began = time.perf_counter()
    rows = simulate(arguments.gates, arguments.seed)
    show(rows)
    print(f"\n{arguments.gates} gates of each kind in {time.perf_counter() - began:.0f} s")
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

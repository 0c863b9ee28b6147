from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kamebench.errors import BadConfig, BadRun
from kamebench.gate.decision import GateResult, RuleLoss, RuleResult, gate, holm, judge
from kamebench.gate.rules import DEFAULT_RULES, Rule, Rules, load_rules
from kamebench.stats.intervals import Estimate
from kamebench.stats.snapshot import take
from tests.unit.gate_parts import Loss, planted_run


def decide(folder: Path, loss: Loss, rules: Rules = DEFAULT_RULES, n: int = 30) -> GateResult:
    baseline = planted_run(folder, "base", n=n)
    return gate([take(planted_run(folder, "run", loss, n=n))], [take(baseline)], rules)


def outcome_of(result: GateResult, name: str) -> str:
    return next(rule.outcome for rule in result.results if rule.name == name)


def test_an_equal_system_passes(tmp_path: Path) -> None:
    result = decide(tmp_path, Loss(seed=2))
    assert (result.outcome, result.exit_code) == ("pass", 0)


@pytest.mark.parametrize(
    ("loss", "rule"),
    [
        (Loss(score=1.0, seed=2), "score"),
        (Loss(late_ms=250, seed=2), "latency_change"),
        (Loss(silent=0.4, seed=2), "silent_share"),
        (Loss(talk_over=0.3, seed=2), "talk_over_share"),
    ],
)
def test_a_planted_loss_is_a_regression_of_its_rule(tmp_path: Path, loss: Loss, rule: str) -> None:
    result = decide(tmp_path, loss)
    assert (result.outcome, result.exit_code) == ("regression", 1)
    assert outcome_of(result, rule) == "regression"


def test_a_better_system_passes(tmp_path: Path) -> None:
    assert decide(tmp_path, Loss(score=-1.0, late_ms=-300, seed=2)).outcome == "pass"


def test_a_wide_interval_does_not_pass(tmp_path: Path) -> None:
    result = decide(tmp_path, Loss(sd=3.0, seed=2))
    assert outcome_of(result, "score") == "inconclusive"
    assert (result.outcome, result.exit_code) == ("inconclusive", 3)


def test_a_run_passes_against_itself_even_when_small(tmp_path: Path) -> None:
    snapshot = take(planted_run(tmp_path, "a", n=3))
    result = gate([snapshot], [snapshot], DEFAULT_RULES)
    assert result.outcome == "pass"
    assert "same recording" in result.notes[0]


def test_too_few_questions_are_inconclusive(tmp_path: Path) -> None:
    result = decide(tmp_path, Loss(seed=2), n=6)
    assert result.outcome == "inconclusive"
    assert "6 questions, at least 10" in result.results[0].reason


def test_faults_beyond_the_limit_are_inconclusive_and_never_a_regression(tmp_path: Path) -> None:
    result = decide(tmp_path, Loss(faults=6, seed=2))
    assert (result.outcome, outcome_of(result, "faults")) == ("inconclusive", "inconclusive")
    assert "12 of 60 turns faulted (12 backend)" in result.results[-1].reason
    assert "12 of 60 turns have no value in both runs" in result.results[0].reason


def test_few_faults_are_missing_data_and_counted(tmp_path: Path) -> None:
    result = decide(tmp_path, Loss(faults=1, seed=2))
    assert result.outcome == "pass"
    assert (result.results[0].n, result.results[0].n_missing) == (58, 2)


def test_repeats_narrow_the_interval(tmp_path: Path) -> None:
    baseline = [take(planted_run(tmp_path, f"base{i}", Loss(sd=1.5, seed=i))) for i in range(4)]
    runs = [take(planted_run(tmp_path, f"run{i}", Loss(sd=1.5, seed=10 + i))) for i in range(4)]
    one = gate(runs[:1], baseline[:1], DEFAULT_RULES).results[0]
    four = gate(runs, baseline, DEFAULT_RULES).results[0]
    assert one.high is not None and one.low is not None and four.high is not None and four.low is not None
    assert (four.high - four.low) < 0.65 * (one.high - one.low)
    assert (four.n, four.n_questions) == (60, 30)


def test_a_rule_may_be_relative_limited_to_a_category_and_lenient(tmp_path: Path) -> None:
    rules = Rules(
        rule=(
            Rule(metric="latency_change", margin_relative=0.2),
            Rule(metric="score", margin=0.1, categories=("stem",), inconclusive="pass"),
        )
    )
    result = decide(tmp_path, Loss(sd=0.8, seed=2), rules)
    latency, score, _ = result.results
    assert latency.margin == pytest.approx(0.2 * (latency.baseline or 0))
    assert (score.n_questions, score.outcome, score.tolerated) == (10, "inconclusive", True)
    assert result.outcome == "pass"


def test_leniency_does_not_pass_a_complete_lack_of_data(tmp_path: Path) -> None:
    rules = Rules(inconclusive="pass", rule=(Rule(metric="score", margin=0.5),), max_fault_share=0.99)
    result = decide(tmp_path, Loss(faults=30, seed=2), rules)
    assert result.outcome == "inconclusive"


def test_direction_can_be_turned(tmp_path: Path) -> None:
    rules = Rules(rule=(Rule(metric="latency_change", margin=50, direction="higher"),))
    assert decide(tmp_path, Loss(late_ms=-200, seed=2), rules).outcome == "regression"


def test_other_questions_and_no_pairs_have_their_own_messages(tmp_path: Path) -> None:
    base = take(planted_run(tmp_path, "base"))
    shorter = take(planted_run(tmp_path, "short", n=20))
    with pytest.raises(BadRun, match=r"asked other questions .* only the baseline q20, q21"):
        gate([shorter], [base], DEFAULT_RULES)
    others = base.model_copy(update={"questions": ("x",), "audio": {}, "run_id": "x"})
    with pytest.raises(BadRun, match="no pairs"):
        gate([others], [base], DEFAULT_RULES)


def estimate_of(loss: float, se: float) -> RuleLoss:
    rule = Rule(metric="score", margin=0.5)
    facts = RuleResult("score", "score", "points", "inconclusive", "", n_questions=30)
    return RuleLoss(rule, Estimate(loss, se, 29, 30), 0.5, facts)


@given(st.floats(-3, 3), st.floats(0, 2))
def test_the_three_outcomes_follow_the_interval(loss: float, se: float) -> None:
    (result,) = judge([estimate_of(loss, se)], 0.95)
    low, high = Estimate(loss, se, 29, 30).bounds()
    if result.outcome == "pass":
        assert high < 0.5
    elif result.outcome == "regression":
        assert low > 0 and loss > 0.5
    else:
        assert high >= 0.5 - 1e-9 and not (low > 1e-9 and loss > 0.5 + 1e-9)


def test_holm_corrects_over_the_rules() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []
    marginal = estimate_of(0.6, 0.28)  # p = 0.02 on its own
    assert judge([marginal], 0.95)[0].outcome == "regression"
    together = judge([marginal, estimate_of(0, 0.1), estimate_of(0, 0.1)], 0.95)
    assert together[0].outcome == "inconclusive" and "number of rules" in together[0].reason


def test_the_minimum_detectable_effect_is_detected_four_times_in_five() -> None:
    mde = judge([estimate_of(0.0, 0.2)], 0.95)[0].mde
    assert mde is not None
    rng = np.random.default_rng(0)
    found = [judge([estimate_of(mde + rng.normal(0, 0.2), 0.2)], 0.95)[0].outcome for _ in range(2000)]
    assert found.count("regression") / 2000 == pytest.approx(0.8, abs=0.03)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[[rule]]\nmetric='scor'\nmargin=1", "no metric named 'scor'"),
        ("[[rule]]\nmetric='latency_p95'\nmargin=1", "shown, not compared"),
        ("[[rule]]\nmetric='score'", "either margin or margin_relative"),
        ("[[rule]]\nmetric='score'\nmargin=-1", "greater than 0"),
        ("[[rule]]\nmetric='score'\nmargin=nan", "margin"),
        ("[[rule]]\nmetric='score'\nmargin=1\ncolour=2", "colour"),
        ("[[rule]]\nmetric='score'\nmargin=1\nmin_questions=2", "greater than or equal to 5"),
        ("[[rule]]\nmetric='score'\nmargin=1\n[[rule]]\nmetric='score'\nmargin=2", "more than one rule"),
        ("confidence=0.95", "rule"),
        ("rule=[", "cannot be read"),
    ],
)
def test_bad_rules_are_refused_by_name(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(text)
    with pytest.raises(BadConfig, match=named):
        load_rules(path)


def test_gating_imports_no_model_no_network_and_no_system() -> None:
    code = (
        "import sys, kamebench.cli.gate, kamebench.gate.baseline, kamebench.gate.outputs;"
        "import kamebench.gate.history, kamebench.gate.power, kamebench.stats.compare;"
        "heavy = {'torch', 'moshi', 'openai', 'anthropic', 'aiohttp', 'httpx', 'kamebench.systems'};"
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

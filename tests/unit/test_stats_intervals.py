from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as reference

from kamebench import stats
from kamebench.stats.intervals import bca, bounded_mean, mean, mean_over_turns, weighted_quantile
from tests.synthetic import Planted, make_run

STRATA = tuple(np.repeat(("reasoning", "stem", "humanities"), 10).tolist())


def test_one_category_gives_scipys_t_interval_over_question_means(tmp_path: Path) -> None:
    scores = np.random.default_rng(0).integers(1, 11, (12, 2)).astype(float)
    plan = {f"q{i}": [Planted(score=float(s)) for s in row] for i, row in enumerate(scores)}
    run = make_run(tmp_path, plan, categories=dict.fromkeys(plan, "stem"))
    overall, stem = stats.score_aggregates(run.table(), method="t")
    means = scores.mean(axis=1)
    low, high = reference.t.interval(0.95, 11, means.mean(), reference.sem(means))
    assert (overall.value, overall.low, overall.high) == pytest.approx((means.mean(), low, high))
    assert (stem.low, stem.high, stem.n, stem.n_missing) == pytest.approx((low, high, 24, 0))


def test_skew_correction_vanishes_for_symmetric_values_and_leans_to_the_long_tail() -> None:
    symmetric = mean(np.array([-3.0, -2, -1, 0, 0, 1, 2, 3]), ["a"] * 8)
    assert symmetric.skew_bounds() == pytest.approx(symmetric.bounds())
    tailed = mean(np.array([9.0, 9, 9, 9, 8, 8, 8, 7, 5, 1]), ["a"] * 10)
    low, high = tailed.skew_bounds()
    assert tailed.value - low > high - tailed.value > 0


def test_few_lopsided_questions_do_not_blow_the_interval_up() -> None:
    """Nine questions, two of them wrong: the correction stretches a side by less than twice."""
    made = mean(np.array([10.0, 10, 10, 10, 10, 7.75, 10, 10, 5.5]), list("aaabbbccc"))
    low, high = made.skew_bounds()
    plain, _ = made.bounds()
    assert 1 < (made.value - low) / (made.value - plain) < 2
    assert high > made.value


def test_only_the_spread_within_categories_counts() -> None:
    levels = np.repeat([2.0, 5.0, 9.0], 10)
    values = levels + np.tile([-0.5, 0.5], 15)
    made = mean(values, STRATA)
    within = np.sqrt(np.mean([values[i : i + 10].var(ddof=1) for i in (0, 10, 20)]) / 30)
    assert made.se == pytest.approx(within)
    assert made.df == pytest.approx(27)


def test_unequal_turns_weigh_as_turns() -> None:
    made = mean_over_turns(np.array([10.0, 4.0, 5.0, 6.0, 12.0]), np.array([2.0, 1, 1, 1, 2]), ["a"] * 5)
    assert made.value == pytest.approx(37 / 7)


@pytest.mark.parametrize("shape", ["normal", "skewed", "tied"])
def test_intervals_cover_as_they_say_at_three_times_ten_questions(shape: str) -> None:
    rng = np.random.default_rng(5)

    def draw(n: int) -> np.ndarray:
        if shape == "normal":
            return rng.normal(6, 2, n)
        tail = np.maximum(1, 10 - rng.exponential(2, n))
        return tail if shape == "skewed" else np.round(tail)

    truth = draw(2_000_000).mean()
    hits = [low <= truth <= high for low, high in (mean(draw(30), STRATA).skew_bounds() for _ in range(3000))]
    assert 0.935 <= np.mean(hits) <= 0.965


def test_bca_is_scipys_and_ten_thousand_resamples_take_under_two_seconds() -> None:
    values = np.random.default_rng(1).gamma(2, size=(80, 8))
    began = time.perf_counter()
    low, high = bca(values, ["a", "b", "c", "d"] * 20)
    assert time.perf_counter() - began < 2
    assert low.shape == high.shape == (8,)
    assert (low < values.mean(axis=0)).all() and (values.mean(axis=0) < high).all()
    one_low, one_high = bca(values[:, 0], ["a"] * 80)
    expected = reference.bootstrap(
        (values[:, 0],), np.mean, n_resamples=10_000, method="BCa", rng=np.random.default_rng(3)
    ).confidence_interval
    width = expected.high - expected.low
    assert abs(float(one_low) - expected.low) < 0.05 * width
    assert abs(float(one_high) - expected.high) < 0.05 * width


def test_bca_is_seeded_and_survives_a_metric_that_does_not_vary() -> None:
    values = np.stack([np.arange(12.0), np.full(12, 3.0)], axis=1)
    first, second = bca(values, ["a", "b"] * 6), bca(values, ["a", "b"] * 6)
    np.testing.assert_array_equal(first, second)
    assert first[0][1] == first[1][1] == 3.0


@given(
    st.lists(st.integers(-50, 50), min_size=1, max_size=25),
    st.sampled_from([0.1, 0.5, 0.9, 0.95]),
)
def test_weighted_quantile_is_numpys_type_two(values: list[int], share: float) -> None:
    array = np.array(values, dtype=float)
    made = weighted_quantile(array, np.ones((1, len(values))), share)[0]
    assert made == pytest.approx(np.quantile(array, share, method="averaged_inverted_cdf"))
    doubled = weighted_quantile(array, np.full((1, len(values)), 2.0), share)[0]
    assert doubled == pytest.approx(np.quantile(np.repeat(array, 2), share, method="averaged_inverted_cdf"))


def test_no_event_in_few_questions_is_no_proof() -> None:
    few, many = bounded_mean(np.zeros(6), ["a"] * 6, (-1, 1)), bounded_mean(np.zeros(60), ["a"] * 60, (-1, 1))
    assert few.bounds()[1] > 0.2
    assert 0 < many.bounds()[1] < 0.05
    # Close to the exact bound: nothing seen in 2n turns.
    assert many.bounds()[1] == pytest.approx(1 - 0.025 ** (1 / 120), abs=0.005)


def test_no_interval_under_five_questions_and_missing_turns_counted(tmp_path: Path) -> None:
    plan = {f"q{i}": [Planted(score=4.0), Planted(score=None)] for i in range(4)}
    overall = stats.score_aggregates(make_run(tmp_path, plan).table())[0]
    assert (overall.value, overall.low, overall.high) == (4.0, None, None)
    assert (overall.n, overall.n_missing) == (4, 4)
    assert "4 question(s), at least 5" in overall.reason


def test_faults_are_missing_and_silence_scores_one(tmp_path: Path) -> None:
    plan = {f"q{i}": [Planted(score=7.0), Planted(score=7.0)] for i in range(6)}
    plan["q0"] = [Planted(fault=True), Planted()]
    plan["q1"] = [Planted(latency_ms=None), Planted(score=7.0)]
    overall = stats.score_aggregates(make_run(tmp_path, plan).table())[0]
    assert overall.value == pytest.approx((1 + 9 * 7) / 10)
    assert (overall.n, overall.n_missing) == (10, 2)

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats as reference

from kamebench import stats
from kamebench.stats.latency import kaplan_meier
from tests.synthetic import Planted, make_run


def latencies_run(folder: Path, latencies: list[float | None]):
    pairs = zip(latencies[::2], latencies[1::2], strict=True)
    plan = {f"q{i}": [Planted(latency_ms=a), Planted(latency_ms=b)] for i, (a, b) in enumerate(pairs)}
    return make_run(folder, plan).table()


def test_kaplan_meier_agrees_with_lifelines_and_scipy() -> None:
    lifelines = pytest.importorskip("lifelines")
    rng = np.random.default_rng(2)
    times = rng.integers(1, 40, 60).astype(float) * 80
    happened = rng.random(60) < 0.7
    t, probability = kaplan_meier(times, happened, np.ones((1, 60)))
    fitted = lifelines.KaplanMeierFitter().fit(times, happened)
    np.testing.assert_allclose(probability[0], 1 - fitted.predict(t).to_numpy(), atol=1e-12)
    data = reference.CensoredData(uncensored=times[happened], right=times[~happened])
    np.testing.assert_allclose(probability[0], reference.ecdf(data).cdf.evaluate(t), atol=1e-12)


def test_weights_are_repetitions() -> None:
    rng = np.random.default_rng(4)
    times, happened = rng.integers(1, 9, 20).astype(float), rng.random(20) < 0.6
    weights = rng.integers(0, 3, 20)
    t, weighted = kaplan_meier(times, happened, weights[None].astype(float))
    again, repeated = kaplan_meier(
        np.repeat(times, weights), np.repeat(happened, weights), np.ones((1, weights.sum()))
    )
    shown = np.isin(t, again)
    np.testing.assert_allclose(weighted[0][shown], repeated[0])


def test_silent_turns_are_censored_and_premature_ones_are_events(tmp_path: Path) -> None:
    curve = stats.response_curve(latencies_run(tmp_path, [-200.0, 100.0, 300.0, None] * 5))
    np.testing.assert_allclose(curve.t_ms, [-200, 100, 300])
    np.testing.assert_allclose(curve.probability, [0.25, 0.5, 0.75])
    assert (curve.low <= curve.probability).all() and (curve.probability <= curve.high).all()


def test_summary_counts_every_outcome_and_never_drops_silence(tmp_path: Path) -> None:
    made = stats.latency_summary(latencies_run(tmp_path, [-100.0, 40.0, 900.0, None] * 5))
    assert made.outcomes == {"answered": 10, "premature": 5, "carry_over": 0, "silent": 5, "fault": 0}
    assert made.p50.value == pytest.approx(470)
    assert made.p90.value is None and "5 of 20 turns are silent" in made.p90.reason
    assert made.clipped_median.value == pytest.approx(40)
    assert made.clipped_mean.value == pytest.approx((0 + 40 + 900) / 3)
    assert "assumed" in made.clipped_mean.method
    assert made.clipped_mean.n_missing == 5
    assert made.within_frame.value == pytest.approx(1 / 3)
    assert made.within_500_ms.value == pytest.approx(2 / 3)
    assert made.shares["silent"].value == pytest.approx(0.25)


def test_the_tail_of_few_turns_has_no_upper_bound(tmp_path: Path) -> None:
    """No 18 turns can say where p95 ends: all of them may lie below it."""
    made = stats.latency_summary(latencies_run(tmp_path, [100.0 * i for i in range(18)]))
    assert made.p95.value == 1700 and made.p95.high is None
    assert made.p95.low is not None and made.p95.low < 1700
    assert made.p95.reason == "upper bound not reached: 18 turns are too few"
    assert made.p50.low is not None and made.p50.high is not None


def test_carry_over_and_bad_pacing_are_left_out_and_counted(tmp_path: Path) -> None:
    table = latencies_run(tmp_path, [400.0] * 20)
    table.loc[0, "outcome"], table.loc[0, "latency_ms"] = "carry_over", np.nan
    table.loc[1, "pacing_usable"] = False
    made = stats.latency_summary(table)
    assert made.excluded == {
        "carry_over": 1,
        "pacing": 1,
    }
    assert (made.p50.n, made.p50.n_missing) == (18, 2)
    assert made.shares["carry_over"].value == pytest.approx(1 / 20)


def test_a_run_without_one_response_has_no_latency(tmp_path: Path) -> None:
    table = latencies_run(tmp_path, [None] * 12)
    made = stats.latency_summary(table)
    assert made.p50.value is None and made.clipped_median.value is None
    assert len(stats.response_curve(table).t_ms) == 0


def test_the_quantiles_interval_is_tight_for_many_questions_and_absent_for_few(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    many = stats.latency_summary(latencies_run(tmp_path / "a", list(rng.normal(900, 100, 160)))).p50
    assert many.low is not None and many.high is not None and many.value is not None
    assert many.low < 900 < many.high and many.high - many.low < 80
    few = stats.latency_summary(latencies_run(tmp_path / "b", [900.0] * 8)).p50
    assert few.value == 900 and few.low is None and "at least 5" in few.reason

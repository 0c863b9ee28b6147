"""How often 95 % intervals hold the truth: the t interval over question means against BCa and percentile.

    python benchmarks/interval_coverage.py [--samples 4000]

Questions come from a population whose mean is known, 3 categories of 10, one of 10 or 3 of 3, two turns each.
Shapes: `normal`; `skewed` (most answers good, a long tail of bad ones, within 1..10); `tied` (whole points,
most turns share one value); `two-peaked` (answers right or wrong, 9 or 2).
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from kamebench.stats.intervals import Floats, bca, mean_over_turns, resample_counts, weighted_quantile
from kamebench.stats.latency import woodruff
from kamebench.stats.turns import TurnValues

CATEGORIES, TURNS = ("reasoning", "stem", "humanities"), 2
SHIFTS = np.array([-1.0, 0.0, 0.5])


def draw(shape: str, rng: np.random.Generator, per_category: int, n_categories: int) -> Floats:
    """Scores [n_questions, 2]: the question moves both turns, categories differ in level."""
    size = (per_category * n_categories, TURNS)
    common = rng.normal(0, 1, (size[0], 1))
    mixed = np.sqrt(0.6) * common + np.sqrt(0.4) * rng.normal(0, 1, size)
    shift = np.repeat(SHIFTS[:n_categories], per_category)[:, None]
    if shape == "normal":
        return 6 + shift + 1.5 * mixed
    if shape == "skewed":
        return np.clip(9 + shift / 2 - np.exp(0.8 * mixed), 1, 10)
    if shape == "tied":
        return np.clip(np.round(8 + 0.7 * mixed + 0.4 * shift), 1, 10)
    return np.where(mixed + 0.4 * shift > -0.6, 9.0, 2.0)


def truth(shape: str, n_categories: int) -> tuple[float, float, float]:
    """Mean, median and p95 of the population, from two million turns."""
    scores = draw(shape, np.random.default_rng(99), 1_000_000 // n_categories, n_categories)
    return float(scores.mean()), float(np.median(scores)), float(np.quantile(scores, 0.95))


def cover(shape: str, per_category: int, n_categories: int, samples: int) -> dict[str, float]:
    """Share of intervals that hold the truth, by method."""
    rng = np.random.default_rng(7)
    mean, median, p95 = truth(shape, n_categories)
    strata = tuple(np.repeat(CATEGORIES[:n_categories], per_category).tolist())
    n = len(strata)
    question = np.repeat(np.arange(n), TURNS)
    weights = resample_counts(strata, 2000)
    drawn = np.stack([draw(shape, rng, per_category, n_categories) for _ in range(samples)])
    means = drawn.mean(axis=2)
    hits: dict[str, float] = {}
    made = [mean_over_turns(s.sum(axis=1), np.full(n, float(TURNS)), strata) for s in drawn]
    for name, edges in (("skew-t", [m.skew_bounds() for m in made]), ("t", [m.bounds() for m in made])):
        hits[name] = float(np.mean([low <= mean <= high for low, high in edges]))
    low, high = bca(means.T.copy(), strata, n_resamples=2000)
    hits["BCa"] = float(np.mean((low <= mean) & (mean <= high)))
    low, high = np.quantile(weights @ means.T / n, (0.025, 0.975), axis=0)
    hits["percentile"] = float(np.mean((low <= mean) & (mean <= high)))
    rows = weights[:, question]
    percentile: list[bool] = []
    inverted: list[bool] = []
    tail: list[bool] = []
    for scores in drawn[: min(samples, 1000)]:
        flat = scores.ravel()
        medians = weighted_quantile(flat, rows, 0.5)
        at, to = np.quantile(medians, (0.025, 0.975), method="inverted_cdf")
        percentile.append(bool(at <= median <= to))
        at, to = woodruff(TurnValues(flat, question, strata, 0), 0.5, float(np.median(flat)))
        inverted.append(bool(at <= median <= to))
        at, to = woodruff(
            TurnValues(flat, question, strata, 0), 0.95, float(np.quantile(flat, 0.95, method="inverted_cdf"))
        )
        tail.append(bool(at <= p95 <= to))
    hits["median, Woodruff"] = float(np.mean(inverted))
    hits["median, percentile"] = float(np.mean(percentile))
    hits["p95, Woodruff"] = float(np.mean(tail))
    return hits


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=4000)
    samples = parser.parse_args().samples
    began = time.perf_counter()
    names = ("skew-t", "t", "BCa", "percentile", "median, Woodruff", "median, percentile", "p95, Woodruff")
    print("| questions | scores | " + " | ".join(names) + " |\n|---|---|" + "---:|" * len(names))
    for n_categories, per_category in ((3, 10), (1, 10), (3, 3)):
        for shape in ("normal", "skewed", "tied", "two-peaked"):
            hits = cover(shape, per_category, n_categories, samples)
            print(
                f"| {n_categories} x {per_category} | {shape} | "
                + " | ".join(f"{hit:.1%}" for hit in hits.values())
                + " |"
            )
    print(f"\n{samples} samples of each kind in {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()

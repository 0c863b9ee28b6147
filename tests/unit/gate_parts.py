"""Runs with planted losses, for the tests of comparison and gate."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kamebench import store
from tests.synthetic import Planted, make_run


@dataclass(frozen=True)
class Loss:
    """What a run is worse by than the plain one, and the noise that it adds."""

    score: float = 0.0
    late_ms: float = 0.0
    silent: float = 0.0
    talk_over: float = 0.0
    faults: int = 0
    sd: float = 0.3
    seed: int = 1


def planted_run(
    folder: Path, name: str, loss: Loss = Loss(), n: int = 30, judge: str = "facts", audio: bool = False
) -> store.Run:
    """A run of n questions with two turns each; equal names of questions mean equal questions."""
    quality = np.random.default_rng(0)
    noise = np.random.default_rng(loss.seed)
    plan: dict[str, list[Planted]] = {}
    for index in range(n):
        turns: list[Planted] = []
        for _ in range(2):
            score, latency = quality.normal(6, 1), quality.normal(900, 150)
            score = float(np.clip(score - loss.score + noise.normal(0, loss.sd), 1, 10))
            silent = noise.random() < loss.silent
            turns.append(
                Planted(
                    score=score,
                    latency_ms=None if silent else float(latency + loss.late_ms + noise.normal(0, 40)),
                    fault=index < loss.faults,
                    talk_over_share=loss.talk_over,
                )
            )
        plan[f"q{index}"] = turns
    return make_run(folder, plan, run_id=name, judge=judge, audio=audio)

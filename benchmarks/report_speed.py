"""How long `kamebench report` takes on many runs with recordings of their own; what changed is built again.

    python benchmarks/report_speed.py [--runs 30] [--questions 30] [--seconds 13]

Every run holds its own noise-like recordings, so that nothing is shared and every second must be encoded.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from kamebench import store
from kamebench.audio import SAMPLE_RATE, TwoTrackWriter
from kamebench.report.site import build_site
from tests.synthetic import Planted, make_run


def speech_like(rng: np.random.Generator, n_samples: int) -> np.ndarray:
    """Low-passed noise in syllables of 4 Hz, float32 [n]."""
    noise = np.convolve(rng.standard_normal(n_samples), np.ones(8) / 8, mode="same")
    syllables = np.clip(np.sin(np.arange(n_samples) * (2 * np.pi * 4 / SAMPLE_RATE)), 0, 1)
    return (0.2 * noise * syllables).astype(np.float32)


def plant(results: Path, n_runs: int, n_questions: int, length_s: float) -> None:
    rng = np.random.default_rng(0)
    for number in range(n_runs):
        plan = {
            f"q{q:02}": [
                Planted(
                    score=float(np.clip(rng.normal(3 + number % 7, 1.5), 1, 10)),
                    latency_ms=float(rng.normal(100 * number, 80)),
                    text="An answer of some length, as a system would give it. " * 6,
                )
                for _ in range(2)
            ]
            for q in range(n_questions)
        }
        run = make_run(
            results,
            plan,
            system=f"system-{number:02}",
            judge="gpt-4.1",
            run_id=f"20260101T0000{number:02}-aaaaaa",
        )
        for question, session in run.sessions.items():
            folder = run.session_folder(question)
            n_samples = max(int(length_s * SAMPLE_RATE), session.n_samples)
            with TwoTrackWriter(folder / store.AUDIO) as writer:
                writer.write(speech_like(rng, n_samples), speech_like(rng, n_samples))
            files = {**session.files, store.AUDIO: store.file_sha256(folder / store.AUDIO)}
            changed = session.model_copy(update={"files": files, "n_samples": n_samples})
            store.write_record(folder / store.SESSION, changed)
        store.seal(run.path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--questions", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=13.0, help="recorded per question")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        results, out = Path(place) / "results", Path(place) / "reports"
        plant(results, options.runs, options.questions, options.seconds)
        found: dict[str, float] = {}
        for name in ("first_s", "unchanged_s"):
            began = time.perf_counter()
            site = build_site(results, out, workers=2)
            found[name] = round(time.perf_counter() - began, 1)
            assert len(site.board.entries) == options.runs, site.board.skipped
        run = store.find_runs(results)[0]
        store.seal(run.path, git_commit="0123456789abcdef")
        began = time.perf_counter()
        assert build_site(results, out, workers=2).rebuilt == 1
        found["one_changed_s"] = round(time.perf_counter() - began, 1)
        recorded_s = options.runs * options.questions * options.seconds
        found |= {
            "recorded_s": recorded_s,
            "first_page_kb": round((out / "index.html").stat().st_size / 1000),
        }
        print(json.dumps(found))


if __name__ == "__main__":
    main()

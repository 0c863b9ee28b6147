"""How exactly onsets are found, by condition, beside a plain energy detector and plain Silero.

    python benchmarks/onset_accuracy.py [--cases 320] [--half report|tune] [--seed 1] [--misses]

Goals: outcome right and onset within 80 ms on all; median error <= 15 ms; under 0.02 of real time. Cases
are made on the spot (see onset_cases.py). The plain detectors are told where the user speaks; kamebench
finds it in the user track.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
from onset_cases import CONDITIONS, Case, make, speak

from kamebench.audio import SAMPLE_RATE, samples_to_ms, seconds
from kamebench.measure import Rules, Span, find_onset, measure_recording
from kamebench.measure.speech import bridged
from kamebench.records import Onset, Segment
from kamebench.vad import open_detector
from kamebench.vad.base import Detector
from kamebench.vad.silero import BEGIN_AT, GO_ON_AT, SileroDetector

TOLERANCE_MS = 80.0


@dataclass
class Tally:
    right: int = 0
    errors_ms: list[float] = field(default_factory=list)
    took_s: float = 0.0


def plain(case: Case, detector: Detector) -> Onset:
    """A detector's own segments with gaps merged and blips dropped by the same rules."""
    found = [(s.start, s.end) for s in detector.segments(case.system)]
    joined = bridged(found, seconds(Rules().merge_gap_s))
    segments = [Segment(start=a, end=b) for a, b in joined if b - a >= seconds(Rules().min_speech_s)]
    span = Span(case.truth.user_start_sample, case.truth.user_end_sample, len(case.user), len(case.user))
    return find_onset(segments, span)


def judge(tally: Tally, found: Onset, truth: Onset) -> bool:
    """Count one result. An onset within 15 ms of the user's end may come out on either side of it."""
    same = found.outcome == truth.outcome
    if found.onset_sample is not None and truth.onset_sample is not None:
        error_ms = samples_to_ms(found.onset_sample - truth.onset_sample)
        tally.errors_ms.append(error_ms)
        close_call = abs(truth.latency_ms or 0.0) <= 15
        right = (same or close_call) and abs(error_ms) <= TOLERANCE_MS
    else:
        right = same
    tally.right += right
    return right


def row(name: str, n: int, tallies: list[Tally]) -> str:
    cells = [name, str(n)]
    for tally in tallies:
        errors = np.abs(tally.errors_ms or [np.nan])
        cells.append(f"{tally.right} | {np.median(errors):.1f} | {errors.max():.0f}")
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cases", type=int, default=320)
    parser.add_argument("--half", choices=("tune", "report"), default="report")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--misses", action="store_true", help="list what kamebench got wrong")
    options = parser.parse_args()
    silero, energy = open_detector("silero"), open_detector("energy")
    plain_silero = SileroDetector(BEGIN_AT, GO_ON_AT)
    methods = {
        "kamebench": lambda case: measure_recording(case.user, case.system, silero),
        "plain Silero": lambda case: plain(case, plain_silero),
        "plain energy": lambda case: plain(case, energy),
    }
    tallies: dict[str, dict[str, Tally]] = {name: defaultdict(Tally) for name in methods}
    audio_s, counts = 0.0, defaultdict[str, int](int)
    for case in make(speak(options.half), options.cases, options.seed):
        counts[case.condition] += 1
        audio_s += len(case.user) / SAMPLE_RATE
        for name, method in methods.items():
            tally, began = tallies[name][case.condition], time.perf_counter()
            found = method(case)
            tally.took_s += time.perf_counter() - began
            if not judge(tally, found, case.truth) and options.misses and name == "kamebench":
                print(f"{case.name}: {case.truth.outcome} {case.truth.latency_ms}", end=" -> ")
                print(f"{found.outcome} {found.latency_ms} {[(s.start, s.end) for s in found.segments]}")
    print("| condition | n | " + " | ".join(f"{name} | median ms | max ms" for name in methods) + " |")
    print("|---|---:|" + "---:|---:|---:|" * len(methods))
    for condition in [name for name in CONDITIONS if counts[name]]:
        print(row(condition, counts[condition], [tallies[name][condition] for name in methods]))
    totals: list[Tally] = []
    for name in methods:
        parts = tallies[name].values()
        errors = [error for part in parts for error in part.errors_ms]
        totals.append(Tally(sum(p.right for p in parts), errors, sum(p.took_s for p in parts)))
    print(row("all", sum(counts.values()), totals))
    for name, total in zip(methods, totals, strict=True):
        print(f"{name}: {total.took_s / audio_s:.4f} of real time")


if __name__ == "__main__":
    main()

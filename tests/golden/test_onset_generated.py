"""Recordings made on the spot in every condition of the benchmark: none may be measured wrongly."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kamebench.audio import samples_to_ms
from kamebench.measure import measure_recording
from kamebench.vad import open_detector

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
N_CASES = 64


@pytest.fixture(scope="module")
def cases() -> Iterator[Any]:
    """The benchmark's case maker, with voices that need no weights."""
    pytest.importorskip("espeakng_loader")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        import onset_cases

        patch.setitem(onset_cases.VOICES, "test", (("espeak:en-us", 1.05), ("espeak:en-gb-scotland", 0.95)))
        yield onset_cases
    sys.modules.pop("onset_cases", None)


@pytest.mark.slow
def test_outcomes_are_right_and_onsets_within_a_frame(cases: Any) -> None:
    detector, errors, wrong = open_detector(), list[float](), list[str]()
    for case in cases.make(cases.speak("test"), N_CASES, seed=7):
        found, truth = measure_recording(case.user, case.system, detector), case.truth
        close_call = truth.latency_ms is not None and abs(truth.latency_ms) <= 15
        if found.outcome != truth.outcome and not close_call:
            wrong.append(f"{case.name}: {truth.outcome} measured as {found.outcome}")
        if found.onset_sample is not None and truth.onset_sample is not None:
            errors.append(abs(samples_to_ms(found.onset_sample - truth.onset_sample)))
            if errors[-1] > 80:
                wrong.append(f"{case.name}: {errors[-1]:.0f} ms off")
    assert not wrong
    assert np.median(errors) <= 6

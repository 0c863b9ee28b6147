"""Labelled recordings: the outcome right on all, the onset within one frame, quickly."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kamebench.audio import SAMPLE_RATE, read_two_tracks, samples_to_ms
from kamebench.measure import measure_recording
from kamebench.vad import open_detector

FOLDER = Path(__file__).parents[1] / "data" / "onset"
LABELS: list[dict[str, Any]] = json.loads((FOLDER / "labels.json").read_text(encoding="utf-8"))
OUTCOMES = {
    "after": "answered",
    "backchannel": "answered",
    "premature": "premature",
    "backchannel only": "silent",
    "silent": "silent",
}


@pytest.mark.parametrize("label", LABELS, ids=lambda label: label["file"])
def test_a_labelled_recording_is_measured_as_labelled(label: dict[str, Any]) -> None:
    onset = measure_recording(*read_two_tracks(FOLDER / label["file"]))
    assert onset.outcome == OUTCOMES[label["case"]]
    assert abs(samples_to_ms(onset.user_start_sample - label["user_start"])) <= 10
    assert abs(samples_to_ms(onset.user_end_sample - label["user_end"])) <= 10
    assert onset.backchannels == label["case"].count("backchannel")
    if label["onset"] is None:
        assert onset.onset_sample is None and onset.latency_ms is None
        assert onset.censored_at_ms and onset.censored_at_ms > 0
    else:
        assert onset.onset_sample is not None
        assert abs(samples_to_ms(onset.onset_sample - label["onset"])) <= 30


def test_the_median_error_is_small_and_measuring_is_fast() -> None:
    detector, errors, audio_s, took_s = open_detector(), list[float](), 0.0, 0.0
    for label in LABELS:
        tracks = read_two_tracks(FOLDER / label["file"])
        began = time.perf_counter()
        onset = measure_recording(*tracks, detector)
        took_s += time.perf_counter() - began
        audio_s += len(tracks[0]) / SAMPLE_RATE
        if onset.onset_sample is not None:
            errors.append(abs(samples_to_ms(onset.onset_sample - label["onset"])))
    assert np.median(errors) <= 6
    assert took_s / audio_s < 0.02

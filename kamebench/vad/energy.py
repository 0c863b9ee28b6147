"""The plain energy detector: what is loud is speech. The yardstick that a real detector has to beat."""

from __future__ import annotations

import numpy as np

from kamebench.audio import WINDOW_SAMPLES, Pcm
from kamebench.records import Segment
from kamebench.vad.base import Detector
from kamebench.vad.runs import runs


class EnergyDetector(Detector):
    """Windows of 10 ms whose level is within `below_peak_db` of the track's loudest, and above the gate."""

    name = "energy"

    def __init__(self, below_peak_db: float = 40.0, gate_db: float = -65.0) -> None:
        self._below_peak_db, self._gate_db = below_peak_db, gate_db
        self.settings = {"detector": self.name, "below_peak_db": below_peak_db, "gate_db": gate_db}

    def segments(self, pcm: Pcm) -> list[Segment]:
        n_windows = len(pcm) // WINDOW_SAMPLES
        windows = pcm[: n_windows * WINDOW_SAMPLES].reshape(n_windows, WINDOW_SAMPLES).astype(np.float64)
        levels = 10 * np.log10(np.mean(np.square(windows), axis=1) + 1e-12)
        threshold = max(self._gate_db, float(levels.max(initial=-120.0)) - self._below_peak_db)
        return [
            Segment(start=start * WINDOW_SAMPLES, end=end * WINDOW_SAMPLES)
            for start, end in runs(levels > threshold)
        ]

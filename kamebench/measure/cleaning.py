"""Takes from a track what is not speech and would hide or fake an edge: offset, rumble, clicks."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy.signal import butter, sosfilt

from kamebench.audio import SAMPLE_RATE, Pcm

CLICK_BLOCK = SAMPLE_RATE // 1000  # 1 ms
CLICK_PEAK = 0.02  # quieter impulses do no harm
CLICK_RATIO = 5.6  # 15 dB
HIGH_PASS_HZ = 70.0  # below the lowest voice

_HIGH_PASS: Any = butter(2, HIGH_PASS_HZ, "highpass", fs=SAMPLE_RATE, output="sos")


def cleaned(pcm: Pcm) -> Pcm:
    """Float32 [n] without offset, rumble and clicks. Causal: no sound begins earlier than it did."""
    return np.asarray(sosfilt(_HIGH_PASS, declicked(pcm - np.float32(np.median(pcm)))), np.float32)


def declicked(pcm: Pcm) -> Pcm:
    """Float32 [n] with impulses of up to 2 ms replaced by a straight line.

    A click is 15 dB louder than all in the 5 ms before it and after it; no sound of speech is that short.
    """
    n_blocks = len(pcm) // CLICK_BLOCK
    peak = np.abs(pcm[: n_blocks * CLICK_BLOCK]).reshape(n_blocks, CLICK_BLOCK).max(axis=1)
    if float(peak.max(initial=0.0)) < CLICK_PEAK:
        return pcm
    # Blocks k-7..k-3 and k+3..k+7: a click may lie across two blocks.
    around = sliding_window_view(np.pad(peak, 7), 5).max(axis=1)
    neighbours = np.maximum(around[:n_blocks], around[10 : 10 + n_blocks])
    clicks = np.flatnonzero((peak > CLICK_PEAK) & (peak > CLICK_RATIO * neighbours))
    out = pcm.copy() if len(clicks) else pcm
    for block in clicks.tolist():
        start, end = max(0, (block - 1) * CLICK_BLOCK), min(len(pcm), (block + 2) * CLICK_BLOCK)
        before = float(pcm[start - 1]) if start else 0.0
        after = float(pcm[end]) if end < len(pcm) else 0.0
        out[start:end] = np.linspace(before, after, end - start)
    return out

"""Rate conversion of a live stream, block by block, with a delay of under a millisecond."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy.signal import firwin

from kamebench.audio import SAMPLE_RATE, Pcm


class Downsampler:
    """24 000 Hz to 16 000 or 8 000 Hz by a short low-pass filter; state is kept between blocks.

    Output sample m is the filtered input at time m / rate. Alias rejection is about 40 dB: enough to say
    whether there is speech.
    """

    _HALF_TAPS = 12

    def __init__(self, rate: int) -> None:
        if rate not in (8_000, 16_000):
            raise ValueError(f"rate {rate}: expected 8000 or 16000")
        self._up = 2 if rate == 16_000 else 1
        cutoff_hz = 0.45 * rate
        taps = firwin(2 * self._HALF_TAPS * self._up + 1, cutoff_hz, fs=SAMPLE_RATE * self._up) * self._up
        # Zeros stuffed between samples are never multiplied: one short filter for each phase.
        self._phases = [np.ascontiguousarray(taps[p :: self._up][::-1], np.float32) for p in range(self._up)]
        self._tail: Pcm = np.zeros(2 * self._HALF_TAPS, np.float32)
        self._next = 0  # position of the next output in the upsampled block

    def push(self, pcm: Pcm) -> Pcm:
        """Convert the next [n] samples at 24 000 Hz."""
        joined = np.concatenate([self._tail, pcm])
        self._tail = joined[-2 * self._HALF_TAPS :]
        positions = np.arange(self._next, len(pcm) * self._up, 3)
        self._next += 3 * len(positions) - len(pcm) * self._up
        out = np.empty(len(positions), np.float32)
        for phase, taps in enumerate(self._phases):
            mine = positions % self._up == phase
            last = positions[mine] // self._up + 2 * self._HALF_TAPS  # newest input each output needs
            if len(last):
                out[mine] = sliding_window_view(joined, len(taps))[last - len(taps) + 1] @ taps
        return out

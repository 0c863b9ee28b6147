"""What in a track is speech, and exactly where it begins and ends.

A detector says what is speech; energy says where its edges are. By definition an edge lies where the level of
a 10 ms window comes within 40 dB of the segment's loudest window. Where that is below the track's noise, the
edge lies where the spectrum leaves the noise, which it does in some bands before others.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from kamebench.audio import SAMPLE_RATE, WINDOW_SAMPLES, Pcm, seconds
from kamebench.measure.cleaning import HIGH_PASS_HZ, cleaned
from kamebench.records import Segment
from kamebench.vad.base import Detector
from kamebench.vad.runs import runs

BLOCK = SAMPLE_RATE // 500  # 2 ms: the grid on which edges are found
WINDOW_BLOCKS = WINDOW_SAMPLES // BLOCK
FFT_SIZE = 2 * WINDOW_SAMPLES  # 20 ms
FRAME_BLOCKS = 2  # a spectrum every 4 ms
SILENCE_POWER = 1e-10  # -100 dBFS: below the noise of 16-bit audio
MIN_QUIET_BLOCKS = 50  # 0.1 s of noise is needed to know it

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Rules:
    """Every threshold of finding speech. `docs/measuring.md` says where each comes from.

    edge_db: level of an edge, relative to the segment's loudest 10 ms window.
    min_speech_s: shorter segments are dropped. merge_gap_s: shorter gaps are bridged.
    listen_dbfs: level to which the loudest parts are brought for the detector, by at most `max_gain_db`.
    over_noise_db: how far a 10 ms window must be above the noise to count by its level alone.
    clear, lasting, faint: excess over the noise's spectrum in mean clipped deviations: clear over 12 ms,
        or lasting over 44 ms while it is not below faint over 12 ms.
    reach_s: how far from the detector's edge the true one is looked for.
    bridge_s: quiet within an edge, such as the closure of a plosive.
    akin_s, akin_db, akin_over_noise_db: sound that the detector missed belongs to speech less than
        `merge_gap_s` away when it lasts that long, is at most that far below the speech's loudest window, and
        is that far above the noise.
    guard_s: what is that close to detected speech is not used to learn the noise.
    """

    edge_db: float = -40.0
    min_speech_s: float = 0.12
    merge_gap_s: float = 0.3
    listen_dbfs: float = -18.0
    max_gain_db: float = 30.0
    over_noise_db: float = 6.0
    clear: float = 0.3
    lasting: float = 0.16
    faint: float = 0.12
    reach_s: float = 0.8
    bridge_s: float = 0.05
    akin_s: float = 0.06
    akin_db: float = 20.0
    akin_over_noise_db: float = 10.0
    guard_s: float = 0.2

    def settings(self) -> dict[str, Any]:
        return asdict(self) | {"high_pass_hz": HIGH_PASS_HZ}


def find_speech(pcm: Pcm, detector: Detector, rules: Rules | None = None) -> list[Segment]:
    """All speech in float32 [n] at 24 000 Hz, in order, edges refined, short gaps merged, blips dropped."""
    return Track(pcm, detector, rules or Rules()).segments(rules or Rules())


def background_db(pcm: Pcm) -> float:
    """Level of the quietest tenth of a track's 10 ms windows, relative to the loudest one."""
    n_windows = len(pcm) // WINDOW_SAMPLES
    windows = cleaned(pcm)[: n_windows * WINDOW_SAMPLES].reshape(n_windows, WINDOW_SAMPLES)
    power = np.square(windows, dtype=np.float64).mean(axis=1)
    loudest = max(float(power.max(initial=0.0)), SILENCE_POWER)
    return float(10 * np.log10((np.quantile(power, 0.1) + 1e-16) / loudest))


class Track:
    """A track with what was detected in it, from which segments follow by rules.

    Args:
        pcm: float32 [n] at 24 000 Hz.
        detector: says what is speech.
        rules: decide how the track is presented to the detector and what is its noise.
    """

    def __init__(self, pcm: Pcm, detector: Detector, rules: Rules) -> None:
        self._pcm, self._rules = cleaned(pcm), rules
        n_blocks = len(pcm) // BLOCK
        squares = np.square(self._pcm[: n_blocks * BLOCK].astype(np.float64))
        self._power: Floats = squares.reshape(n_blocks, BLOCK).mean(axis=1)
        # Window k holds the 10 ms up to the end of block k.
        padded = np.concatenate([np.zeros(WINDOW_BLOCKS - 1), self._power])
        self._window_power: Floats = sliding_window_view(padded, WINDOW_BLOCKS).mean(axis=1)
        self._detected = self._detect(detector)

    def _detect(self, detector: Detector) -> list[Segment]:
        if float(self._power.max(initial=0.0)) < SILENCE_POWER:
            return []
        loudest = np.sort(self._window_power)[-max(1, len(self._window_power) // 50) :].mean()
        gain_db = self._rules.listen_dbfs - 10 * np.log10(loudest)
        gain = 10 ** (min(gain_db, self._rules.max_gain_db) / 20)
        return detector.segments(np.clip(self._pcm * np.float32(gain), -1.0, 1.0))

    def segments(self, rules: Rules) -> list[Segment]:
        """Speech by `rules`, which may differ from the track's own in everything but the detection."""
        found: list[tuple[int, int]] = []
        for segment in self._detected:
            edges = self._edges(segment, rules)
            if edges is not None:
                found.append((max(edges[0], found[-1][1]) if found else edges[0], edges[1]))
        joined = bridged(sorted(found), seconds(rules.merge_gap_s))
        least = seconds(rules.min_speech_s)
        return [Segment(start=start, end=end) for start, end in joined if end - start >= least]

    def _edges(self, segment: Segment, rules: Rules) -> tuple[int, int] | None:
        """Where the sound that a detected segment touches begins and ends, in samples."""
        reach = seconds(rules.reach_s)
        first = max(0, segment.start - reach) // BLOCK
        last = min(len(self._pcm), segment.end + reach) // BLOCK
        core = slice(segment.start // BLOCK, segment.end // BLOCK)
        edge_power = float(self._window_power[core].max(initial=0.0)) * 10 ** (rules.edge_db / 10)
        noise_power = self._noise_power * 10 ** (rules.over_noise_db / 10)
        level = max(edge_power, noise_power, SILENCE_POWER)
        active = self._by_level(first, last, level)
        if noise_power > edge_power:
            active |= self._over_noise[first:last]
        ranges = bridged(runs(active), round(rules.bridge_s * SAMPLE_RATE / BLOCK))
        ranges = [(first + start, first + end) for start, end in ranges]
        touched = [k for k, (start, end) in enumerate(ranges) if start < core.stop and end > core.start]
        if not touched:
            return None
        loud = 10 ** (-rules.akin_db / 10) * edge_power / 10 ** (rules.edge_db / 10)
        loud = max(loud, self._noise_power * 10 ** (rules.akin_over_noise_db / 10))
        begin, end = self._akin(ranges, touched[0], touched[-1], loud, rules)
        return ranges[begin][0] * BLOCK, ranges[end][1] * BLOCK

    def _akin(
        self, ranges: list[tuple[int, int]], begin: int, end: int, loud: float, rules: Rules
    ) -> tuple[int, int]:
        """Widen ranges [begin, end] by neighbours that belong to them: near, not short, about as loud.

        The detector may be deaf to a drawn-out or unusual sound at the edge of speech.
        """
        gap, least = round(rules.merge_gap_s * SAMPLE_RATE / BLOCK), round(rules.akin_s * SAMPLE_RATE / BLOCK)

        def belongs(k: int) -> bool:
            start, stop = ranges[k]
            return stop - start >= least and float(self._window_power[start:stop].max()) > loud

        while begin > 0 and ranges[begin][0] - ranges[begin - 1][1] < gap and belongs(begin - 1):
            begin -= 1
        while end + 1 < len(ranges) and ranges[end + 1][0] - ranges[end][1] < gap and belongs(end + 1):
            end += 1
        return begin, end

    def _by_level(self, first: int, last: int, level: float) -> Flags:
        """Which blocks carry a 10 ms window that is above `level`."""
        loud = self._window_power[first:last] > level
        within = loud.copy()
        for k in range(1, WINDOW_BLOCKS):
            within[:-k] |= loud[k:]
        return within & (self._power[first:last] > level / WINDOW_BLOCKS)

    @cached_property
    def _quiet(self) -> Flags:
        """Which blocks surely hold no speech: not near anything the detector found."""
        quiet, guard = np.ones(len(self._power), bool), seconds(self._rules.guard_s)
        for segment in self._detected:
            quiet[max(0, segment.start - guard) // BLOCK : (segment.end + guard) // BLOCK + 1] = False
        return quiet

    @cached_property
    def _noise_power(self) -> float:
        quiet = self._window_power[self._quiet]
        if len(quiet) < MIN_QUIET_BLOCKS:
            return float(np.quantile(self._window_power, 0.05))
        return float(np.quantile(quiet, 0.9))

    @cached_property
    def _over_noise(self) -> Flags:
        """Which blocks have a spectrum that cannot be the noise's."""
        short, rules = _smoothed(self._excess, 3), self._rules
        lasting = (_smoothed(self._excess, 11) > rules.lasting) & (short > rules.faint)
        return np.repeat((short > rules.clear) | lasting, FRAME_BLOCKS)[: len(self._power)]

    @cached_property
    def _excess(self) -> Floats:
        """[n_frames] How far each spectrum is above the noise, in mean clipped deviations of its bands."""
        spectra = self._spectra
        noise = spectra[self._quiet[::FRAME_BLOCKS]]
        if len(noise) < MIN_QUIET_BLOCKS // FRAME_BLOCKS:
            noise = np.quantile(spectra, [0.02, 0.05, 0.1], axis=0)
        deviation = np.maximum(noise.std(axis=0), 0.3)
        return np.clip((spectra - noise.mean(axis=0)) / deviation - 1.0, 0.0, 5.0).mean(axis=1)

    @cached_property
    def _spectra(self) -> Floats:
        """Log power in bands [n_frames, n_bands] every 4 ms, each from the 20 ms around its frame."""
        padded = np.pad(self._pcm, (FFT_SIZE // 2 - BLOCK, FFT_SIZE))
        hop = FRAME_BLOCKS * BLOCK
        frames = sliding_window_view(padded, FFT_SIZE)[: len(self._power) * BLOCK : hop]
        spectrum = np.square(np.abs(np.fft.rfft(frames * _HANN, axis=1)))
        bands = np.add.reduceat(spectrum, _BANDS[:-1], axis=1) / _BAND_BINS
        # What lies below the level of an edge is as good as silence: white noise at that level hides it.
        loudest = float(self._window_power.max(initial=SILENCE_POWER))
        return np.log(bands + _BIN_OF_WHITE * loudest * 10 ** (self._rules.edge_db / 10))


_HANN = np.hanning(FFT_SIZE + 1)[:-1].astype(np.float32)
_BIN_OF_WHITE = float(np.square(_HANN).sum())  # mean of a spectrum's bins for white noise of power 1
_BIN_HZ = SAMPLE_RATE // FFT_SIZE  # 50
# Upper limits in Hz, about as wide as critical bands.
_LIMITS = (
    50,
    150,
    250,
    350,
    450,
    600,
    800,
    1000,
    1300,
    1700,
    2200,
    2800,
    3500,
    4500,
    5700,
    7200,
    9000,
    11000,
)
_BANDS = np.array([*(limit // _BIN_HZ for limit in _LIMITS), FFT_SIZE // 2 + 1])
_BAND_BINS = np.diff(_BANDS)


def _smoothed(values: Floats, n: int) -> Floats:
    return np.asarray(np.convolve(values, np.full(n, 1 / n), "same")[: len(values)], np.float64)


def bridged(ranges: list[tuple[int, int]], gap: int) -> list[tuple[int, int]]:
    """Half-open ranges in order, with gaps shorter than `gap` closed."""
    joined: list[tuple[int, int]] = []
    for start, end in ranges:
        if joined and start - joined[-1][1] < gap:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined

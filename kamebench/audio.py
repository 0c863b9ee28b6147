"""Audio: 24 000 Hz mono float32, 1 920 samples a frame, 80 ms. Framing, files, resampling, clipping."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import soundfile as sf
import soxr
from numpy.typing import NDArray

from kamebench.errors import BadAudio

SAMPLE_RATE = 24_000
FRAME_SAMPLES = 1_920
FRAMES_PER_S = SAMPLE_RATE / FRAME_SAMPLES  # 12.5
FRAME_NS = FRAME_SAMPLES * 1_000_000_000 // SAMPLE_RATE  # 80 ms, exact
WINDOW_SAMPLES = SAMPLE_RATE // 100  # 10 ms

Pcm = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Frame:
    """Frame `index` of a stream: float32 [1920] in [-1, 1], samples [1920*index, 1920*(index+1))."""

    index: int
    pcm: Pcm


def samples_to_ns(samples: int) -> int:
    return samples * 1_000_000_000 // SAMPLE_RATE


def ns_to_samples(t_ns: int) -> int:
    """The sample that is due at `t_ns`: the first one that starts at or after it."""
    return -(-t_ns * SAMPLE_RATE // 1_000_000_000)


def samples_to_ms(samples: int) -> float:
    return samples * 1000 / SAMPLE_RATE


def seconds(value: float) -> int:
    """Seconds as samples, rounded to the nearest."""
    return round(value * SAMPLE_RATE)


def frames_of(pcm: Pcm, first_index: int = 0) -> Iterator[Frame]:
    """Cut [n] samples into frames; the last one is padded with zeros to a whole frame."""
    for at in range(0, len(pcm), FRAME_SAMPLES):
        block = pcm[at : at + FRAME_SAMPLES]
        if len(block) < FRAME_SAMPLES:
            block = np.pad(block, (0, FRAME_SAMPLES - len(block)))
        yield Frame(first_index + at // FRAME_SAMPLES, block)


def checked(pcm: NDArray[Any], what: str) -> Pcm:
    """The samples as float32 [n], or `BadAudio` when they are empty, not finite or not one channel."""
    if pcm.ndim != 1:
        raise BadAudio(f"{what}: expected one channel, got shape {list(pcm.shape)}. Mix or select a channel.")
    if pcm.size == 0:
        raise BadAudio(f"{what}: holds no samples. Give a recording of at least one frame (80 ms).")
    if not bool(np.isfinite(pcm).all()):
        bad = int(np.flatnonzero(~np.isfinite(pcm))[0])
        raise BadAudio(f"{what}: sample {bad} is not a finite number. Write the file again.")
    return pcm.astype(np.float32, copy=False)


def resample(pcm: Pcm, rate_from: int, rate_to: int = SAMPLE_RATE) -> Pcm:
    """[n] samples at `rate_from` Hz to `rate_to` Hz (soxr, high quality)."""
    if rate_from == rate_to:
        return pcm
    return np.asarray(soxr.resample(pcm, rate_from, rate_to), np.float32)


def pcm_sha256(pcm: Pcm) -> str:
    """Hash of the samples as stored in a 16-bit file, so that a file and its array agree."""
    return hashlib.sha256(to_int16(pcm)[0].tobytes()).hexdigest()


def to_int16(pcm: Pcm) -> tuple[NDArray[np.int16], int]:
    """Samples as 16-bit integers, and how many were outside [-1, 1] and had to be clipped."""
    clipped = int(np.count_nonzero(np.abs(pcm) > 1.0))
    return np.clip(np.rint(pcm * 32_767.0), -32_768, 32_767).astype(np.int16), clipped


def read_audio(path: Path) -> Pcm:
    """Read a WAV, FLAC or Ogg file as float32 [n, channels] at 24 000 Hz.

    Raises:
        BadAudio: the file is missing, unreadable, empty or holds NaN.
    """
    try:
        data, rate = sf.read(path, dtype="float32", always_2d=True)
    except (OSError, sf.LibsndfileError) as error:
        reason = "no such file" if not path.exists() else str(error)
        raise BadAudio(f"{path}: cannot be read as audio ({reason}). Give a WAV, FLAC or Ogg file.") from None
    columns = [resample(checked(data[:, c], f"{path}, channel {c}"), rate) for c in range(data.shape[1])]
    return np.stack(columns, axis=1)


def read_mono(path: Path) -> Pcm:
    """Read a one-channel file as float32 [n] at 24 000 Hz."""
    data = read_audio(path)
    if data.shape[1] != 1:
        raise BadAudio(f"{path}: has {data.shape[1]} channels, expected 1. Select one channel.")
    return data[:, 0]


def read_two_tracks(path: Path) -> tuple[Pcm, Pcm]:
    """Read a stereo file: left the user, right the system, each float32 [n] at 24 000 Hz."""
    data = read_audio(path)
    if data.shape[1] != 2:
        raise BadAudio(
            f"{path}: has {data.shape[1]} channel(s), expected 2: left the user, right the system. "
            "Record both sides into one stereo file."
        )
    return np.ascontiguousarray(data[:, 0]), np.ascontiguousarray(data[:, 1])


def write_mono(path: Path, pcm: Pcm) -> None:
    """Write [n] samples as 16-bit FLAC, at once or not at all."""
    part = path.with_name(path.name + ".part")
    sf.write(part, to_int16(pcm)[0], SAMPLE_RATE, format="FLAC", subtype="PCM_16")
    part.replace(path)


class TwoTrackWriter:
    """Writes a stereo 16-bit FLAC block by block; the file takes its name only when closed cleanly."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._part = path.with_name(path.name + ".part")
        self._file = sf.SoundFile(
            self._part, "w", samplerate=SAMPLE_RATE, channels=2, format="FLAC", subtype="PCM_16"
        )
        self.n_samples = 0
        self.clipped_samples = 0

    def write(self, user: Pcm, system: Pcm) -> None:
        """Append [n] samples to both tracks."""
        left, clipped_left = to_int16(user)
        right, clipped_right = to_int16(system)
        self._file.write(np.stack([left, right], axis=1))
        self.n_samples += len(user)
        self.clipped_samples += clipped_left + clipped_right

    def __enter__(self) -> TwoTrackWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        if kind is None:
            self._part.replace(self._path)


SPEECH_FLOOR_DB = -40.0  # below the loudest window


def speech_bounds(pcm: Pcm) -> tuple[int, int]:
    """First sample and one past the last sample of the speech in clean float32 [n].

    The edges of the first and the last 10 ms window whose RMS is above -40 dB of the loudest window's.

    Raises:
        BadAudio: there is no sound at all.
    """
    windows = -(-len(pcm) // WINDOW_SAMPLES)
    padded = np.pad(pcm, (0, windows * WINDOW_SAMPLES - len(pcm))).astype(np.float64)
    power = np.square(padded).reshape(windows, WINDOW_SAMPLES).mean(axis=1)
    loudest = float(power.max(initial=0.0))
    if loudest == 0.0:
        raise BadAudio("the audio is silent throughout. Speak it again, or choose another engine.")
    loud = np.flatnonzero(power > loudest * 10 ** (SPEECH_FLOOR_DB / 10))
    return int(loud[0]) * WINDOW_SAMPLES, min((int(loud[-1]) + 1) * WINDOW_SAMPLES, len(pcm))

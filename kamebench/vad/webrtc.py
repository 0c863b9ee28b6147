"""The WebRTC voice activity detector: cheap enough for every frame of many sessions side by side."""

from __future__ import annotations

from collections import deque
from importlib.metadata import version

import numpy as np
import webrtcvad

from kamebench.audio import SAMPLE_RATE, Pcm, resample, to_int16
from kamebench.records import Segment
from kamebench.vad.base import Detector, StreamingDetector
from kamebench.vad.runs import runs
from kamebench.vad.streaming import Downsampler

RATE = 8_000  # the rate it works at inside
CHUNK = RATE // 50  # 20 ms
MODE = 3  # the most sceptical of four, for whole tracks, where nothing else keeps noise out
GATED_MODE = 2


class WebrtcStreaming(StreamingDetector):
    """WebRTC behind a level gate, as it takes steady noise of any level for speech.

    It hears 12 dB more than there is, as it is deaf to speech under -40 dBFS. A block holds speech where at
    least half of its 20 ms chunks do, and their level is above both -65 dBFS and 6 dB over the quietest chunk
    of the last four seconds.
    """

    name = "webrtc"
    _GAIN = 4.0
    _GATE_DB = -65.0
    _OVER_FLOOR_DB = 6.0
    _FLOOR_CHUNKS = 200

    def __init__(self) -> None:
        self._vad = webrtcvad.Vad(GATED_MODE)
        self._down = Downsampler(RATE)
        self._rest: Pcm = np.zeros(0, np.float32)
        self._levels: deque[float] = deque(maxlen=self._FLOOR_CHUNKS)

    def is_speech(self, pcm: Pcm) -> bool:
        joined = np.concatenate([self._rest, self._down.push(pcm)])
        n_chunks = len(joined) // CHUNK
        chunks, self._rest = joined[: n_chunks * CHUNK].reshape(n_chunks, CHUNK), joined[n_chunks * CHUNK :]
        centred = chunks - chunks.mean(axis=1, keepdims=True)  # an offset is no sound
        levels = 10 * np.log10(np.mean(np.square(centred), axis=1) + 1e-12)
        codes = to_int16(centred * np.float32(self._GAIN))[0]
        n_speech = 0
        for level, chunk in zip(levels.tolist(), codes, strict=True):
            self._levels.append(level)
            loud = level > max(self._GATE_DB, min(self._levels) + self._OVER_FLOOR_DB)
            # Asked even when the chunk is too quiet: its own noise model follows the stream.
            n_speech += self._vad.is_speech(chunk.tobytes(), RATE) and loud
        return n_chunks > 0 and 2 * n_speech >= n_chunks


class WebrtcDetector(Detector):
    """WebRTC over a whole track, in chunks of 20 ms."""

    name = "webrtc"

    def __init__(self) -> None:
        self.settings = {
            "detector": self.name,
            "version": version("webrtcvad-wheels"),
            "mode": float(MODE),
            "chunk_ms": 1000 * CHUNK / RATE,
        }

    def segments(self, pcm: Pcm) -> list[Segment]:
        codes = to_int16(resample(pcm, SAMPLE_RATE, RATE))[0]
        vad, n_chunks, width = webrtcvad.Vad(MODE), len(codes) // CHUNK, CHUNK * SAMPLE_RATE // RATE
        speech = [vad.is_speech(codes[k * CHUNK : (k + 1) * CHUNK].tobytes(), RATE) for k in range(n_chunks)]
        return [Segment(start=start * width, end=end * width) for start, end in runs(np.array(speech, bool))]

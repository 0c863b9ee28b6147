"""Where the user's utterances begin and end, for systems that take turns."""

from __future__ import annotations

from collections import deque
from typing import Literal

import numpy as np

from kamebench.audio import FRAME_SAMPLES, SAMPLE_RATE, Frame, Pcm
from kamebench.vad.base import StreamingDetector

FRAME_MS = FRAME_SAMPLES * 1000 // SAMPLE_RATE

Heard = Literal["began", "ended"]


class Ear:
    """Cuts a stream of frames into utterances.

    Args:
        detector: says of each frame whether it holds speech.
        hangover_ms: silence that ends an utterance; rounded up to whole frames of 80 ms.
        min_speech_ms: speech that begins one; shorter bursts are clicks.
        pre_roll_ms: audio kept from before the detector was sure.
    """

    def __init__(
        self,
        detector: StreamingDetector,
        *,
        hangover_ms: int,
        min_speech_ms: int = 160,
        pre_roll_ms: int = 320,
    ) -> None:
        self._detector = detector
        self._hangover = -(-hangover_ms // FRAME_MS)
        self._min_speech = -(-min_speech_ms // FRAME_MS)
        self._recent: deque[Pcm] = deque(maxlen=-(-pre_roll_ms // FRAME_MS) + self._min_speech)
        self._utterance: list[Pcm] | None = None
        self._run = 0

    def hear(self, frame: Frame) -> Heard | None:
        """Take the next frame; says when an utterance has begun or ended with it."""
        speech = self._detector.is_speech(frame.pcm)
        if self._utterance is None:
            self._recent.append(frame.pcm)
            self._run = self._run + 1 if speech else 0
            if self._run < self._min_speech:
                return None
            self._utterance = list(self._recent)
            self._run = 0
            return "began"
        self._utterance.append(frame.pcm)
        self._run = 0 if speech else self._run + 1
        return "ended" if self._run >= self._hangover else None

    def take(self) -> Pcm:
        """The utterance that has ended, float32 [n]; the ear then listens for the next one."""
        blocks, self._utterance, self._run = self._utterance or [], None, 0
        self._recent.clear()
        return np.concatenate(blocks) if blocks else np.zeros(0, np.float32)

"""Voice activity: what in a track is speech."""

from __future__ import annotations

from abc import ABC, abstractmethod

from kamebench.audio import Pcm
from kamebench.records import Segment


class Detector(ABC):
    """Finds speech in a whole track. `settings` holds every threshold, for the manifest."""

    name: str
    settings: dict[str, float | str]

    @abstractmethod
    def segments(self, pcm: Pcm) -> list[Segment]:
        """Speech in float32 [n] at 24 000 Hz as half-open sample ranges in order, edges as detected."""


class StreamingDetector(ABC):
    """Says block by block whether there is speech: for control (turn ends, barge-in), not measurement."""

    name: str

    @abstractmethod
    def is_speech(self, pcm: Pcm) -> bool:
        """Whether the next block, float32 [n] at 24 000 Hz, holds speech. Keeps state between calls."""

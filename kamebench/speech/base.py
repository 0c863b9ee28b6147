"""Text to speech: what an engine must offer, for user turns and for a cascade's voice alike."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from kamebench.audio import Pcm


class SpeechEngine(ABC):
    """Turns speakable text into audio. `name`, `version` and `voice` go into every cache key and record.

    `settings`: whatever else changes the samples (noise, rate, hash of the weights); part of the cache key.
    """

    name: str
    version: str
    voice: str
    settings: Mapping[str, str | float] = MappingProxyType({})

    def start(self) -> None:
        """Load the voice, so that the first call is not slower than the others."""

    @abstractmethod
    def stream(self, text: str) -> Iterator[Pcm]:
        """Speak `text`: float32 [n] chunks at 24 000 Hz in [-1, 1], as soon as each is ready.

        Blocking: call it in a thread.

        Raises:
            EngineFault: the engine failed (party "synthesiser").
        """

    def close(self) -> None:
        """Free the voice."""

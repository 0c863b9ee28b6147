"""Speech to text: one batch and one streaming interface."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from kamebench.audio import Frame, Pcm


@dataclass(frozen=True, slots=True)
class Word:
    """A word and when it was said, seconds from the start of the audio given."""

    text: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Recognised:
    """The text of a stretch of audio; words where the recogniser gives times."""

    text: str
    words: tuple[Word, ...] = ()


class Recogniser(ABC):
    """Recognises whole recordings. `name` holds model and size: "faster-whisper:tiny.en".

    `settings` holds what decides the text beside the weights, for the record.
    """

    name: str
    settings: Mapping[str, Any] = MappingProxyType({})

    def start(self) -> None:
        """Load the weights, so that the first call is not slower than the others."""

    @abstractmethod
    def transcribe(self, pcm: Pcm) -> Recognised:
        """Recognise float32 [n] at 24 000 Hz. Blocking: call it in a thread.

        Give it speech only; recognisers invent text on silence.

        Raises:
            EngineFault: the recogniser failed.
        """

    def transcribe_words(self, pcm: Pcm) -> Recognised:
        """As `transcribe`, with the time of every word where the recogniser can tell; slower."""
        return self.transcribe(pcm)

    def close(self) -> None:
        """Free the weights."""


@dataclass(frozen=True, slots=True)
class Partial:
    """The text of the current utterance so far, cumulative; it may still change unless `final`.

    Final comes only at an end-point. `words` as far as times are known.
    """

    text: str
    final: bool
    words: tuple[Word, ...] = ()


class StreamingRecogniser(ABC):
    """Recognises a live stream. One object a session."""

    name: str

    @abstractmethod
    async def send(self, frame: Frame) -> None:
        """Take the next frame; must not block for recognition."""

    @abstractmethod
    def results(self) -> AsyncIterator[Partial]:
        """Results as they come, until `aclose`."""

    @abstractmethod
    async def aclose(self) -> None:
        """Stop, leaving no task or thread behind."""

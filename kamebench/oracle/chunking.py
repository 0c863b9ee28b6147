"""How a back-end's text chunks become oracle text: as released, or with word boundaries kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Protocol

Chunking = Literal["released", "word-safe"]


class Chunker(Protocol):
    """Turns the chunks of one request into pieces of text, each to be stripped and tokenised on its own.

    Pieces keep their spaces, so that joined they are the answer again.
    """

    def feed(self, text: str) -> Iterator[str]: ...

    def flush(self) -> Iterator[str]: ...


class ReleasedChunker:
    """Each chunk as it comes: 'un' + 'believable' become two words. White space alone waits for the next."""

    def __init__(self) -> None:
        self._space = ""

    def feed(self, text: str) -> Iterator[str]:
        text = self._space + text
        self._space = ""
        if text.strip():
            yield text
        else:
            self._space = text

    def flush(self) -> Iterator[str]:
        return iter(())


class WordSafeChunker:
    """Whole words only: the last word of a chunk waits until white space or the end shows it is complete."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> Iterator[str]:
        held = self._held + text
        cut = max((at for at, char in enumerate(held) if char.isspace()), default=-1)
        ready, self._held = held[:cut] if cut > 0 else "", held[cut:] if cut > 0 else held
        if ready.strip():
            yield ready
        else:
            self._held = ready + self._held

    def flush(self) -> Iterator[str]:
        held, self._held = self._held, ""
        if held.strip():
            yield held


def chunker(kind: Chunking) -> Chunker:
    """A new chunker for one request."""
    return ReleasedChunker() if kind == "released" else WordSafeChunker()

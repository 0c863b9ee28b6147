"""A stream of text pieces cut into sentences as early as it is safe."""

from __future__ import annotations

import re

# An end mark, closing quotes, then a space; not after a single letter or a common abbreviation.
_END = re.compile(
    r"(?<![A-Z])(?<!\bDr)(?<!\bMr)(?<!\bMs)(?<!\bMrs)(?<!\bSt)(?<!\bvs)(?<!\be\.g)(?<!\bi\.e)[.!?]+[\"')\]]*\s+|\n+"
)


class SentenceCutter:
    """Feed it pieces; it gives back whole sentences."""

    def __init__(self) -> None:
        self._buffer = ""

    def feed(self, piece: str) -> list[str]:
        """Take a piece of text; returns the sentences that are complete now."""
        self._buffer += piece
        done: list[str] = []
        while (match := _END.search(self._buffer)) is not None:
            sentence, self._buffer = self._buffer[: match.end()].strip(), self._buffer[match.end() :]
            if sentence:
                done.append(sentence)
        return done

    def rest(self) -> str:
        """What is left when the stream has ended."""
        rest, self._buffer = self._buffer.strip(), ""
        return rest

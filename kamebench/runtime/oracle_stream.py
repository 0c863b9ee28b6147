"""The oracle stream's rule, free of any model."""

from __future__ import annotations

from collections.abc import Sequence


class OracleStream:
    """The oracle tokens of one conversation, one consumed a step.

    A reset at step s makes the stream [initial] with origin s; appended tokens join its end. Step t consumes
    index t - origin where it exists, else padding: tokens whose index has passed are never seen.
    """

    def __init__(self, pad_id: int, initial_id: int) -> None:
        self._pad, self._initial = pad_id, initial_id
        self._origin: int | None = None
        self._tokens: list[int] = []

    def reset(self, step: int) -> None:
        self._origin, self._tokens = step, [self._initial]

    def append(self, step: int, tokens: Sequence[int]) -> None:
        """Add tokens before `step`; the first append with no reset before starts a stream too."""
        if self._origin is None:
            self.reset(step)
        self._tokens += tokens

    def clear(self) -> None:
        """Forget everything, as before the first update."""
        self._origin, self._tokens = None, []

    def at(self, step: int) -> int:
        """The token that `step` consumes."""
        index = -1 if self._origin is None else step - self._origin
        return self._tokens[index] if 0 <= index < len(self._tokens) else self._pad

"""From per-window decisions to ranges."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def hysteresis(values: NDArray[np.floating[Any]], begin_at: float, go_on_at: float) -> NDArray[np.bool_]:
    """True from where [n] values reach `begin_at` until they fall below `go_on_at`."""
    marks = np.where(values >= begin_at, 1, np.where(values < go_on_at, -1, 0))
    last = np.maximum.accumulate(np.where(marks != 0, np.arange(len(marks)), -1))
    return (last >= 0) & (marks[last] == 1)


def runs(flags: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Half-open ranges of True in [n] flags."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8)))
    return [(int(start), int(end)) for start, end in zip(edges[::2], edges[1::2], strict=True)]

"""What a listener hears: output audio placed on the stream clock."""

from __future__ import annotations

from collections import deque

import numpy as np

from kamebench.audio import FRAME_SAMPLES, Pcm, ns_to_samples
from kamebench.events import AudioOut


class Playout:
    """The queue between a system and a listener's ear.

    Audio starts at the later of its arrival and the end of what is queued before it; an output frame computed
    from input frame k not before sample 1920*(k+1). A flush throws away what has not been heard yet.
    """

    def __init__(self) -> None:
        self._blocks: deque[tuple[int, Pcm]] = deque()
        self.end_sample = 0

    def add(self, event: AudioOut) -> int:
        """Queue audio; returns the sample at which it will be heard."""
        start = max(ns_to_samples(event.t_ns), self.end_sample)
        if event.synchronous:
            start = max(start, FRAME_SAMPLES * (event.frame + 1))
        if len(event.pcm):
            self._blocks.append((start, event.pcm))
            self.end_sample = start + len(event.pcm)
        return start

    def flush(self, t_ns: int) -> None:
        """Throw away what would be heard from stream time `t_ns` on."""
        cut = ns_to_samples(t_ns)
        while self._blocks and self._blocks[-1][0] >= cut:
            self._blocks.pop()
        if self._blocks:
            start, pcm = self._blocks[-1]
            self._blocks[-1] = (start, pcm[: cut - start])
        self.end_sample = min(self.end_sample, cut)

    def take(self, start: int, end: int) -> Pcm:
        """The track over samples [start, end); silence where nothing was queued. Earlier audio is dropped."""
        track = np.zeros(end - start, np.float32)
        while self._blocks:
            at, pcm = self._blocks[0]
            if at >= end:
                break
            left, right = max(at, start), min(at + len(pcm), end)
            if right > left:
                track[left - start : right - start] = pcm[left - at : right - at]
            if at + len(pcm) > end:
                break
            self._blocks.popleft()
        return track

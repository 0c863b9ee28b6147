"""One beat of a batch: frames in, frames out. Knows nothing of time; one thread may call it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kamebench.audio import FRAME_SAMPLES, Pcm
from kamebench.runtime.codec import Codec
from kamebench.runtime.generator import NOTHING, Generator, Sampling


@dataclass(frozen=True, slots=True)
class Request:
    """A row's part of a beat: float32 [1920] and the oracle token. `seed`: given with the first frame of a
    conversation, and makes the row forget the one before."""

    row: int
    pcm: Pcm
    oracle_token: int
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Output:
    """float32 [1920], the text token, and the audio tokens; None in the first steps, while the model's
    delay lasts."""

    pcm: Pcm | None = None
    text_token: int | None = None
    audio_tokens: tuple[int, ...] | None = None


class Beat(Protocol):
    """What an engine runs."""

    rows: int

    def step(self, requests: Sequence[Request]) -> list[Output]:
        """One step of the rows asked for, in their order; the other rows stand still."""
        ...

    def close(self) -> None: ...


class Batch:
    """B rows of language model and codec."""

    def __init__(self, model: Any, mimi: Any, rows: int, sampling: Sampling) -> None:
        self.rows = rows
        self._pad = int(model.existing_text_padding_id)
        self._generator = Generator(model, rows, sampling)
        self._codec = Codec(mimi, rows)

    def step(self, requests: Sequence[Request]) -> list[Output]:
        import torch

        frames: list[Pcm | None] = [None] * self.rows
        oracle, active = [self._pad] * self.rows, [False] * self.rows
        for request in requests:
            frames[request.row] = request.pcm
            oracle[request.row], active[request.row] = request.oracle_token, True
        fresh = {request.row: request.seed for request in requests if request.seed is not None}
        with torch.no_grad():
            if fresh:
                self._generator.reset(fresh)
                self._codec.reset(list(fresh))
            codes = self._codec.encode(frames)
            if fresh:  # as the released server: the codec's left padding is applied again to the next frame
                self._codec.reset(list(fresh))
            tokens = self._generator.step(codes, active, oracle)
            found: list[list[int]] = tokens.tolist()
            speaks = [NOTHING not in row for row in found]
            audio = self._codec.decode(tokens[:, 1:], speaks) if any(speaks) else None
        return [
            Output(audio[r.row].copy(), found[r.row][0], tuple(found[r.row][1:]))
            if audio is not None and speaks[r.row]
            else Output()
            for r in requests
        ]

    def warm_up(self, beats: int = 4) -> None:
        """Let kernels and CUDA graphs be made before anything is measured; rows forget it when they open.

        Between the beats all rows stand still once: setting the mask of active rows is a graph of its own.
        """
        import numpy as np

        silence = np.zeros(FRAME_SAMPLES, np.float32)
        for beat in range(beats):
            seed = None if beat else 0
            self.step([Request(row, silence, self._pad, seed) for row in range(self.rows)])
            self.step([])

    def close(self) -> None:
        self._generator.close()
        self._codec.close()

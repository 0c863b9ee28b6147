"""Mimi over B rows: 24 kHz frames of 1920 samples to codes and back, each row with a stream of its own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from kamebench.audio import FRAME_SAMPLES, SAMPLE_RATE, Pcm
from kamebench.errors import BadCheckpoint
from kamebench.runtime.checkpoint import read_tensors


def mimi_config(path: Path | None) -> dict[str, Any]:
    """The codec's sizes; None: the released one's.

    Raises:
        BadCheckpoint: the file cannot be read as JSON, or is of another codec.
    """
    if path is None:
        from moshi.models import loaders

        return dict(loaders._mimi_config)  # pyright: ignore[reportPrivateUsage] named nowhere else
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadCheckpoint(f"{path}: cannot be read as JSON: {error}.") from None
    for key in ("seanet", "transformer", "quantizer"):
        if not isinstance(config, dict) or key not in config:
            raise BadCheckpoint(f"{path}: has no '{key}': the config of another codec than Mimi.")
    return config


def load_mimi(path: Path, config_path: Path | None, codebooks: int, device: str) -> Any:
    """A Mimi with the weights of a file, in float32; `config_path` None: the released one's sizes.

    Raises:
        BadCheckpoint: naming the tensor or setting that does not fit, or a codec of another frame.
    """
    import torch
    from moshi.models.loaders import get_mimi

    try:
        mimi: Any = get_mimi(None, mimi_config(config_path), device=device, num_codebooks=codebooks)
    except (TypeError, ValueError, KeyError, AssertionError, RuntimeError) as error:
        raise BadCheckpoint(
            f"{config_path}: does not make a Mimi: {type(error).__name__}: {error}."
        ) from error
    if (mimi.sample_rate, mimi.frame_size) != (SAMPLE_RATE, FRAME_SAMPLES):
        raise BadCheckpoint(
            f"{config_path}: frames of {mimi.frame_size} samples at {mimi.sample_rate} Hz; "
            f"expected {FRAME_SAMPLES} at {SAMPLE_RATE} Hz."
        )
    own = mimi.state_dict()
    state = read_tensors(path, {name: tuple(t.shape) for name, t in own.items()}, "", torch.float32, device)
    mimi.load_state_dict(state)
    return mimi


class Codec:
    """B rows of streaming Mimi."""

    def __init__(self, mimi: Any, rows: int) -> None:
        self._mimi, self._rows = mimi, rows
        self._device = next(mimi.parameters()).device
        self._active: list[bool] | None = None
        self._streams = ExitStack()
        self._streams.enter_context(mimi.streaming(rows))

    def reset(self, rows: Sequence[int]) -> None:
        """Make rows forget what they encoded and decoded."""
        import torch

        mask = torch.zeros(self._rows, dtype=torch.bool)
        mask[list(rows)] = True
        self._mimi.reset_streaming(mask)
        self._active = None  # a reset makes its rows active

    def _run_only(self, active: Sequence[bool]) -> None:
        import torch

        if list(active) != self._active:  # every module keeps the mask: not to be set without need
            self._active = list(active)
            self._mimi.set_exec_mask(torch.tensor(active))

    def encode(self, frames: Sequence[Pcm | None]) -> Any:
        """The next frame of each row, float32 [1920] in [-1, 1] -> int64 [B, codebooks, 1].

        A row whose frame is None stands still; its codes mean nothing.
        """
        import torch

        silence = np.zeros(FRAME_SAMPLES, np.float32)
        block = np.stack([silence if frame is None else frame for frame in frames])
        audio = torch.from_numpy(block)[:, None].to(self._device)
        self._run_only([frame is not None for frame in frames])
        return self._mimi.encode(audio)

    def decode(self, codes: Any, active: Sequence[bool]) -> Pcm:
        """Codes int64 [B, codebooks] -> float32 [B, 1920] in [-1, 1]; rows not active stand still."""
        self._run_only(active)
        audio = self._mimi.decode(codes.clamp(min=0)[:, :, None])
        return audio[:, 0].float().clamp(-1, 1).cpu().numpy()

    def close(self) -> None:
        self._streams.close()

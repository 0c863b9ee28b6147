"""Milliseconds a frame of KAME's parts, beside the floor that the memory's bandwidth sets.

    python benchmarks/kame_step.py [--size tiny|full] [--device cpu|cuda] [--batch 1 8 32] [--frames 50]

Random weights: `full` has the released model's sizes (7.69 B parameters and an oracle embedding) and needs a
GPU; `tiny` runs anywhere. Each part is timed with the work of the part before it done (on CUDA between
synchronisations), so parts do not add up to the whole frame exactly. Floor: bytes of the language model's
weights, each read once a frame, / bandwidth; the bandwidth is that of copying 1 GiB on the device (64 MiB on
the CPU), read and write counted. A tiny model's weights
stay in a cache: no floor applies.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections.abc import Callable
from typing import Any

import numpy as np

os.environ.setdefault("NO_TORCH_COMPILE", "1")  # read when moshi is imported

import torch
from moshi.models import loaders

from kamebench.audio import FRAME_SAMPLES
from kamebench.runtime.batch import Batch, Request
from kamebench.runtime.generator import Sampling, add_oracle

TINY_LM: dict[str, Any] = loaders._lm_kwargs | {
    "dim": 128,
    "text_card": 500,
    "card": 64,
    "num_heads": 4,
    "num_layers": 2,
    "context": 100,
    "depformer_dim": 64,
    "depformer_dim_feedforward": 264,
    "depformer_num_heads": 4,
    "depformer_num_layers": 2,
}


def build(size: str, device: str) -> tuple[Any, Any]:
    """Language model and codec with random weights."""
    lm = loaders._lm_kwargs if size == "full" else TINY_LM
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    model: Any = loaders.get_moshi_lm(None, dict(lm), device=device, dtype=dtype)
    model.eval()
    add_oracle(model, {})
    mimi_config = dict(loaders._mimi_config)
    if size == "tiny":
        mimi_config["seanet"] = mimi_config["seanet"] | {"dimension": 64, "n_filters": 4}
        mimi_config["quantizer"] = mimi_config["quantizer"] | {
            "dimension": 32,
            "n_q": 8,
            "bins": 64,
            "input_dimension": 64,
            "output_dimension": 64,
        }
        mimi_config["transformer"] = mimi_config["transformer"] | {
            "d_model": 64,
            "num_heads": 4,
            "num_layers": 2,
            "dim_feedforward": 256,
            "input_dimension": 64,
            "output_dimensions": [64],
        }
    mimi: Any = loaders.get_mimi(None, mimi_config, device=device, num_codebooks=8)
    for name, buffer in mimi.named_buffers():
        if name.endswith("embedding_sum"):
            buffer.normal_()
        elif name.endswith("cluster_usage"):
            buffer.fill_(1.0)
    return model, mimi


class Stopwatch:
    """Wraps methods to time their calls; on CUDA waits for the device before and after."""

    def __init__(self, device: str) -> None:
        self._cuda = device == "cuda"
        self.ms: dict[str, list[float]] = {}

    def now_s(self) -> float:
        if self._cuda:
            torch.cuda.synchronize()
        return time.perf_counter()

    def wrap(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any) -> Any:
            began = self.now_s()
            out = call(*args)
            self.ms.setdefault(name, []).append((self.now_s() - began) * 1000)
            return out

        return timed


def measure(model: Any, mimi: Any, device: str, rows: int, frames: int) -> dict[str, float]:
    """Median ms a frame: of the whole with nothing between, then of each part."""
    batch = Batch(model, mimi, rows, Sampling())
    batch.warm_up(6)
    audio = np.random.default_rng(0).standard_normal((rows, FRAME_SAMPLES)).astype(np.float32) * 0.1
    requests = [Request(row, audio[row], 3) for row in range(rows)]
    whole = Stopwatch(device)
    step = whole.wrap("whole frame", batch.step)
    for _ in range(frames):
        step(requests)
    parts = Stopwatch(device)
    codec, state = batch._codec, batch._generator._lm._streaming_state
    codec.encode = parts.wrap("Mimi encode", codec.encode)  # type: ignore[method-assign]
    codec.decode = parts.wrap("Mimi decode", codec.decode)  # type: ignore[method-assign]
    state.graphed_main = parts.wrap("LM step", state.graphed_main)
    state.graphed_depth = parts.wrap("depth transformer", state.graphed_depth)
    for _ in range(frames):
        batch.step(requests)
    batch.close()
    found = {name: float(np.median(ms)) for name, ms in {**parts.ms, **whole.ms}.items()}
    found["whole frame p99"] = float(np.quantile(whole.ms["whole frame"], 0.99))
    return found


def bandwidth(device: str) -> float:
    """Bytes a second, read and written, of a copy on the device."""
    n_bytes = 1 << (30 if device == "cuda" else 26)
    source = torch.empty(n_bytes, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    clock, best = Stopwatch(device), float("inf")
    for _ in range(5):
        began = clock.now_s()
        target.copy_(source)
        best = min(best, clock.now_s() - began)
    return 2 * n_bytes / best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    cuda = torch.cuda.is_available()
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if cuda else "cpu")
    parser.add_argument("--size", choices=["tiny", "full"], default="full" if cuda else "tiny")
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--frames", type=int, default=50)
    given = parser.parse_args()
    if given.size == "full" and given.device == "cpu":
        parser.error("--size full needs --device cuda: 15 GB of weights read for every frame")
    if given.device == "cpu":
        torch.set_num_threads(1)
    name = torch.cuda.get_device_name() if given.device == "cuda" else platform.processor() or "CPU"
    model, mimi = build(given.size, given.device)
    n_bytes = sum(p.numel() * p.element_size() for p in model.parameters())
    speed = bandwidth(given.device)
    floor_ms = n_bytes / speed * 1000
    print(f"{name}, torch {torch.__version__}, {given.size}, {n_bytes / 1e9:.3g} GB of weights,")
    print(f"{speed / 1e9:.0f} GB/s, floor {floor_ms:.3g} ms; median ms a frame of {given.frames}\n")
    columns = ["LM step", "depth transformer", "Mimi encode", "Mimi decode", "whole frame", "whole frame p99"]
    print("| B | " + " | ".join(columns) + " | whole / floor |")
    print("|---" * (len(columns) + 2) + "|")
    for rows in given.batch:
        found = measure(model, mimi, given.device, rows, given.frames)
        cells = " | ".join(f"{found[column]:.2f}" for column in columns)
        ratio = f"{found['whole frame'] / floor_ms:.1f}" if given.size == "full" else "-"
        print(f"| {rows} | {cells} | {ratio} |")


if __name__ == "__main__":
    main()

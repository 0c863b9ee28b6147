"""What needs a CUDA device: graphs against plain calls, rows against separate runs, the released sizes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kamebench.audio import FRAME_SAMPLES
from kamebench.runtime.batch import Batch, Output, Request
from kamebench.runtime.checkpoint import load_lm, read
from kamebench.runtime.codec import load_mimi
from kamebench.runtime.generator import GREEDY, Sampling
from tests.tiny_models import SPEAKER, TEXT_CARD, write_checkpoint

pytestmark = [
    pytest.mark.gpu,
    # torch 2.13 deprecates a decorator that it uses itself.
    pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning"),
]
FRAMES = 40
SAMPLING = Sampling(temp=1.2, temp_text=1.5, top_k=20, top_k_text=30)


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Any]]:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    folder: Path = tmp_path_factory.mktemp("tiny")
    write_checkpoint(folder, SPEAKER)
    model = load_lm(read(str(folder)).lm, folder / "model.safetensors", "fp32", "cuda", "from-text")
    yield model, load_mimi(folder / "mimi.safetensors", folder / "mimi.json", 8, "cuda")


def talk(number: int) -> list[Request]:
    rng = np.random.default_rng(number)
    audio = (rng.standard_normal((FRAMES, FRAME_SAMPLES)) * 0.3).astype(np.float32)
    oracle = rng.integers(0, TEXT_CARD, FRAMES)
    return [Request(0, audio[t], int(oracle[t]), None if t else number) for t in range(FRAMES)]


def run(parts: tuple[Any, Any], talks: list[list[Request]], sampling: Sampling) -> list[list[Any]]:
    """Tokens of each; row r misses every (r + 3)th beat."""
    batch = Batch(*parts, len(talks), sampling)
    found: list[list[Output]] = [[] for _ in talks]
    beat = 0
    while any(len(out) < FRAMES for out in found):
        beat += 1
        rows = [r for r, out in enumerate(found) if len(out) < FRAMES and beat % (r + 3)]
        outputs = batch.step([dataclasses.replace(talks[r][len(found[r])], row=r) for r in rows])
        for r, output in zip(rows, outputs, strict=True):
            found[r].append(output)
    batch.close()
    return [[(output.text_token, output.audio_tokens) for output in out] for out in found]


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLING], ids=["greedy", "sampled"])
def test_graphs_equal_plain_calls(parts: tuple[Any, Any], sampling: Sampling) -> None:
    from moshi.utils.compile import no_cuda_graph

    graphed = run(parts, [talk(1), talk(2)], sampling)
    with no_cuda_graph():
        assert run(parts, [talk(1), talk(2)], sampling) == graphed


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLING], ids=["greedy", "sampled"])
def test_rows_equal_separate_runs(parts: tuple[Any, Any], sampling: Sampling) -> None:
    together = run(parts, [talk(n) for n in range(4)], sampling)
    assert together == [run(parts, [talk(n)], sampling)[0] for n in range(4)]


def test_a_frame_of_the_released_sizes_fits_its_80_ms(parts: tuple[Any, Any]) -> None:
    import torch

    from benchmarks.kame_step import build, measure

    if torch.cuda.mem_get_info()[0] < 40e9:
        pytest.skip("needs 40 GB of free device memory")
    model, mimi = build("full", "cuda")
    assert measure(model, mimi, "cuda", 1, 30)["whole frame p99"] < 80

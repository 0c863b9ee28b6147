"""Kyutai's streaming recogniser: its words from tokens, and the real code on a tiny random checkpoint."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kamebench.asr.base import Partial
from kamebench.asr.kyutai import KyutaiEngine, WordDecoder
from kamebench.audio import FRAME_SAMPLES, Frame
from kamebench.clock import Activity, StreamClock
from kamebench.errors import BadCheckpoint, BadConfig
from tests.tiny_models import RECOGNISER, write_checkpoint

N_FRAMES = 14

# torch 2.13 deprecates a decorator that it uses itself.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")


def decode(decoder: WordDecoder, tokens: list[tuple[str | None, float | None]]) -> list[Partial]:
    results = [decoder.step(frame, piece, pause) for frame, (piece, pause) in enumerate(tokens)]
    return [result for result in results if result is not None]


def test_words_carry_the_times_of_the_audio_and_end_at_a_pause() -> None:
    pause = [(None, 0.1), ("▁he", 0.1), ("llo", 0.1), (None, 0.2), ("▁you", 0.1), (None, 0.9), (None, 0.9)]
    results = decode(WordDecoder(delay_s=0.08), pause)
    assert [(r.text, r.final) for r in results] == [
        ("he", False),
        ("hello", False),
        ("hello you", False),
        ("hello you", True),
    ]
    hello, you = results[-1].words
    assert (hello.start_s, hello.end_s) == pytest.approx((0.0, 0.16))
    assert (you.start_s, you.end_s) == pytest.approx((0.24, 0.32))


def test_without_pause_heads_silence_of_the_text_ends_the_utterance() -> None:
    decoder = WordDecoder(delay_s=0.0, quiet_frames=3)
    results = decode(decoder, [("▁a", None), *[(None, None)] * 6, ("▁b", None), *[(None, None)] * 3])
    assert [(r.text, r.final) for r in results] == [("a", False), ("a", True), ("b", False), ("b", True)]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights of a speech-to-text model with pause heads, in the public layout."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_TORCH_COMPILE", "1")  # read when moshi is imported
        pytest.importorskip("moshi.models.lm")
    folder = tmp_path_factory.mktemp("stt")
    write_checkpoint(
        folder,
        RECOGNISER,
        model_type="stt",
        stt_config={"audio_delay_seconds": 0.16, "audio_silence_prefix_seconds": 0.08},
    )
    return folder


def audio() -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(1)
    return [(rng.standard_normal(FRAME_SAMPLES) * 0.1).astype(np.float32) for _ in range(N_FRAMES)]


async def recognise(engine: KyutaiEngine) -> list[Partial]:
    activity, got = Activity(StreamClock()), []
    recogniser = engine.open(activity)

    async def listen() -> None:
        async for result in recogniser.results():
            got.append(result)  # noqa: PERF401

    listening = asyncio.create_task(listen())
    for k, block in enumerate(audio()):
        await recogniser.send(Frame(k, block))
    await activity.wait_idle()
    await recogniser.aclose()
    await listening
    return got


async def test_the_real_code_equals_the_package_run_by_hand(checkpoint: Path) -> None:
    import torch
    from moshi.models.lm import LMGen
    from moshi.models.loaders import CheckpointInfo

    engine = KyutaiEngine(str(checkpoint), device="cpu")
    engine.start()
    try:
        first, second = await recognise(engine), await recognise(engine)
    finally:
        engine.close()
    info: Any = CheckpointInfo.from_hf_repo(
        "none/none",
        moshi_weights=checkpoint / "model.safetensors",
        mimi_weights=checkpoint / "mimi.safetensors",
        tokenizer=checkpoint / "tokenizer.model",
        config_path=checkpoint / "config.json",
        mimi_config_path=checkpoint / "mimi.json",
    )
    mimi, tokenizer = info.get_mimi(device="cpu"), info.get_text_tokenizer()
    model = LMGen(info.get_moshi(device="cpu", dtype=torch.float32), use_sampling=False)
    decoder, expected = WordDecoder(delay_s=0.16), []
    with torch.no_grad(), mimi.streaming(1), model.streaming(1):
        for at, block in enumerate([np.zeros(FRAME_SAMPLES, np.float32), *audio()]):
            codes = mimi.encode(torch.from_numpy(block)[None, None])
            if at == 0:
                model.step(codes)
            tokens, heads = model.step_with_extra_heads(codes)  # type: ignore[misc]
            token = int(tokens[0, 0, 0])
            piece = None if token in (0, 3) else tokenizer.id_to_piece(token)
            if at:
                result = decoder.step(at - 1, piece, float(heads[2][0, 0, 0]))
                expected += [result] if result is not None else []
    assert expected
    assert first == expected
    assert second == expected  # a new session remembers nothing


async def test_one_session_at_a_time(checkpoint: Path) -> None:
    engine = KyutaiEngine(str(checkpoint), device="cpu")
    engine.start()
    activity = Activity(StreamClock())
    recogniser = engine.open(activity)
    with pytest.raises(BadConfig, match="one session"):
        engine.open(activity)
    await recogniser.aclose()
    await engine.open(activity).aclose()
    engine.close()


def test_another_model_is_refused(checkpoint: Path, tmp_path: Path) -> None:
    config = json.loads((checkpoint / "config.json").read_text()) | {"model_type": "moshi"}
    shutil.copytree(checkpoint, tmp_path, dirs_exist_ok=True)
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(BadCheckpoint, match="'moshi'"):
        KyutaiEngine(str(tmp_path), device="cpu").start()

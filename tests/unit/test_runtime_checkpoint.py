"""Checkpoints that fit and that do not, and what a conversation needs of memory."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kamebench.errors import BadCheckpoint, BadConfig, UserError
from kamebench.runtime import memory, voice
from kamebench.runtime.checkpoint import Dtype, Oracle, load_lm, read
from kamebench.runtime.generator import GREEDY, Sampling
from kamebench.runtime.voice import VoiceSettings, load
from tests.tiny_models import RECOGNISER, SPEAKER, TEXT_CARD, write_checkpoint

# torch 2.13 deprecates a decorator that it uses itself.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")


@pytest.fixture(scope="module", autouse=True)
def moshi() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_TORCH_COMPILE", "1")  # read when moshi is imported
        pytest.importorskip("moshi.models.lm")
        yield


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three streams."""
    folder = tmp_path_factory.mktemp("moshi")
    write_checkpoint(folder, SPEAKER)
    return folder


@pytest.fixture
def copy(plain: Path, tmp_path: Path) -> Path:
    """One to be changed."""
    return shutil.copytree(plain, tmp_path / "copy")


def open_voice(folder: Path, oracle: Oracle = "none", **more: Any) -> voice.Voice:
    settings = VoiceSettings(str(folder), **{"dtype": "fp32", "device": "cpu", **more})
    return load(settings, 1, oracle)


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_every_dtype_speaks(plain: Path, dtype: Dtype, threads_ended: None) -> None:
    import asyncio

    async def talk(loaded: voice.Voice) -> list[int | None]:
        slot = loaded.engine.open(1)
        pcm = np.random.default_rng(0).standard_normal((4, 1920)).astype(np.float32) * 0.1
        found = [await slot.step(frame) for frame in pcm]
        await slot.aclose()
        assert found[0].pcm is None
        assert all(s.pcm is not None and np.isfinite(s.pcm).all() for s in found[1:])
        return [s.text_token for s in found]

    loaded = open_voice(plain, "from-text", dtype=dtype)
    try:
        tokens = asyncio.run(talk(loaded))
    finally:
        loaded.engine.close()
    assert tokens[0] is None
    assert all(token is not None and 0 <= token <= TEXT_CARD for token in tokens[1:])


def damage_tensor(folder: Path, file: str, change: Callable[[dict[str, Any]], None]) -> None:
    from safetensors.torch import load_file, save_file

    state = load_file(folder / file)
    change(state)
    save_file(state, folder / file)


def put(name: str) -> Callable[[dict[str, Any]], None]:
    import torch

    return lambda state: state.update({name: torch.zeros(3)})


@pytest.mark.parametrize("file", ["model.safetensors", "mimi.safetensors"])
@pytest.mark.parametrize(
    ("damage", "says"),
    [
        ("truncated", "is truncated"),
        ("missing", "lacks tensor {name}"),
        ("shape", r"{name} has shape \[3\]; the config makes it \["),
        ("extra", "has tensor surplus.weight, unknown"),
    ],
)
def test_tensors_that_do_not_fit_are_named(copy: Path, file: str, damage: str, says: str) -> None:
    name = {"model.safetensors": "out_norm.alpha", "mimi.safetensors": "encoder.model.0.conv.conv.weight"}[
        file
    ]
    if damage == "truncated":
        path = copy / file
        path.write_bytes(path.read_bytes()[:-64])
    elif damage == "missing":
        damage_tensor(copy, file, lambda state: state.pop(name))
    else:
        damage_tensor(copy, file, put("surplus.weight" if damage == "extra" else name))
    with pytest.raises(BadCheckpoint, match=says.format(name=name.replace(".", r"\."))) as caught:
        open_voice(copy)
    assert file in str(caught.value)


def test_an_oracle_embedding_is_refused_as_moshi_and_loaded_as_kame(copy: Path) -> None:
    import torch

    damage_tensor(
        copy,
        "model.safetensors",
        lambda state: state.update({"oracle_emb.weight": state["text_emb.weight"] + 1}),
    )
    with pytest.raises(BadCheckpoint, match=r"oracle_emb\.weight.*run it as system kame"):
        open_voice(copy)
    model = load_lm(read(str(copy)).lm, copy / "model.safetensors", "fp32", "cpu", "from-text")
    assert torch.equal(model.text_emb.oracle.weight, model.text_emb.text.weight + 1)
    assert not model.oracle_from_text


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"dep_q": None}, "has no 'dep_q'"),
        ({"dep_q": 0}, "dep_q = 0 of n_q = 16"),
        ({"delays": [0, 1]}, "delays has 2 entries; n_q = 16 needs 17"),
        ({"delays": 1}, "delays = 1; expected a list"),
        ({"delays": [0] * 16 + [-1]}, "expected a list of whole numbers"),
        ({"n_q": "16"}, "n_q = '16'; expected a whole number"),
        ({"model_type": "hibiki"}, "model_type is 'hibiki'"),
        ({"conditioners": {"speaker": {}}}, "conditioned model"),
        ({"lora_name": "lora.safetensors"}, "Merge the LoRA"),
        ({"surprise": 1}, "surprise"),
        ({"num_heads": 5}, "does not make a Moshi model"),
        ({"moshi_name": "other.safetensors"}, r"names other\.safetensors as moshi_name"),
        ({"moshi_name": None}, "has no 'moshi_name'"),
        ({"tokenizer_name": "mimi.json"}, "is not a SentencePiece model"),
        ({"text_card": 50}, "text_card|text_emb"),
        ({"lm_gen_config": {"cfg_coef": 2.0}}, "cfg_coef"),
    ],
)
def test_configs_of_another_model_are_refused(copy: Path, change: dict[str, Any], says: str) -> None:
    config = json.loads((copy / "config.json").read_text()) | change
    config = {key: value for key, value in config.items() if value is not None}
    (copy / "config.json").write_text(json.dumps(config))
    with pytest.raises(BadCheckpoint, match=says):
        open_voice(copy)


def test_what_is_no_checkpoint_is_refused(tmp_path: Path, plain: Path) -> None:
    with pytest.raises(BadCheckpoint, match=r"has no config\.json"):
        read(str(tmp_path))
    with pytest.raises(BadCheckpoint, match="neither a folder nor"):
        read("/no/such/folder/here")
    (tmp_path / "config.json").write_text("[1]")
    with pytest.raises(BadCheckpoint, match="expected a JSON object"):
        read(str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps(RECOGNISER))
    with pytest.raises(BadCheckpoint, match="both speaks and hears"):
        read(str(tmp_path))
    with pytest.raises(BadConfig, match="device 'tpu'"):
        open_voice(plain, device="tpu")


def test_sampling_is_the_checkpoints_unless_asked_otherwise(copy: Path) -> None:
    own = read(str(copy)).sampling()
    assert own == Sampling(0.8, 0.7, 250, 25)
    config = json.loads((copy / "config.json").read_text())
    config["lm_gen_config"] = {"temp": 0.5, "top_k_text": 40}
    (copy / "config.json").write_text(json.dumps(config))
    own = read(str(copy)).sampling()
    assert own == Sampling(0.5, 0.7, 250, 40)
    assert VoiceSettings("x").sampling(own) == own
    assert VoiceSettings("x", text_temperature=0.0).sampling(own) == Sampling(0.5, 0.0, 250, 40)
    greedy = VoiceSettings("x", greedy=True).sampling(own)
    assert (greedy.temp, greedy.temp_text) == (0.0, 0.0)
    assert VoiceSettings("x", greedy=False).sampling(GREEDY) == Sampling()


@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
def test_cache_bytes_are_those_of_the_real_tensors(plain: Path, dtype: Dtype) -> None:
    from moshi.models.lm import LMGen
    from moshi.modules.transformer import RingKVCache

    from kamebench.runtime.codec import load_mimi, mimi_config

    checkpoint = read(str(plain))
    model = load_lm(checkpoint.lm, plain / "model.safetensors", dtype, "cpu", "none")
    mimi = load_mimi(plain / "mimi.safetensors", plain / "mimi.json", 8, "cpu")

    def held(module: Any) -> int:
        states = [getattr(part, "_streaming_state", None) for part in module.modules()]
        caches = [getattr(state, "kv_cache", None) for state in states]
        return sum(c.cache.nbytes for c in caches if isinstance(c, RingKVCache))

    rows = 3
    generator: Any = LMGen(model)
    with generator.streaming(rows), mimi.streaming(rows):
        assert held(model) == rows * memory.kv_cache_bytes(checkpoint.lm, dtype) > 0
        assert held(mimi) == rows * memory.codec_cache_bytes(mimi_config(plain / "mimi.json")) > 0
    weights = {name: tuple(t.shape) for name, t in model.state_dict().items()}
    assert memory.weight_bytes(weights, dtype) == sum(t.nbytes for t in model.state_dict().values())


def test_the_released_model_needs_1_6_gb_a_session() -> None:
    released = {"num_layers": 32, "context": 3000, "dim": 4096}
    assert memory.kv_cache_bytes(released, "bf16") == 1_572_864_000
    budget = memory.Budget(weights=15_400_000_000, session=1_605_632_000, free=139 * 1024**3)
    assert budget.sessions >= 64


def test_sessions_that_do_not_fit_are_refused_before_loading(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (copy / "model.safetensors").unlink()  # would be an error of its own, were it looked for
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1_000_000)
    settings = VoiceSettings(str(copy), dtype="fp32", device="cpu")
    with pytest.raises(
        UserError, match=r"--sessions 64: needs .* MB on cpu .* 1\.0 MB are free\. \d+ fit"
    ) as e:
        load(settings, 64, "none")
    fits = int(str(e.value).split("--sessions ")[-1].rstrip("."))
    with pytest.raises(BadCheckpoint, match=r"model\.safetensors"):
        load(settings, fits, "none")
    with pytest.raises(UserError, match=f"--sessions {fits + 1}:"):
        load(settings, fits + 1, "none")
    monkeypatch.setattr(memory, "free_bytes", lambda device: 1000)
    with pytest.raises(UserError, match="Not even one fits"):
        load(settings, 1, "none")
    monkeypatch.undo()
    assert 10**6 < memory.free_bytes("cpu") < 2**63

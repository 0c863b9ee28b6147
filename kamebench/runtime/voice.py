"""A checkpoint, loaded once and shared by all conversations of a system."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from kamebench.errors import BadCheckpoint, BadConfig, MissingExtra
from kamebench.runtime import memory
from kamebench.runtime.batch import Batch
from kamebench.runtime.checkpoint import Checkpoint, Dtype, Oracle, lm_shapes, load_lm, read
from kamebench.runtime.codec import load_mimi, mimi_config
from kamebench.runtime.engine import Engine
from kamebench.runtime.generator import Sampling


class Tokenizer(Protocol):
    """A SentencePiece model."""

    def encode(self, text: str) -> Sequence[int]: ...

    def id_to_piece(self, token: int) -> str: ...


@dataclass(frozen=True, slots=True)
class VoiceSettings:
    """Which weights, where, and how tokens are drawn. `device` None: cuda where there is one, else cpu.
    Of the sampling, None: what the checkpoint says."""

    source: str
    revision: str | None = None
    dtype: Dtype = "bf16"
    device: str | None = None
    greedy: bool | None = None
    temperature: float | None = None
    text_temperature: float | None = None
    top_k: int | None = None
    text_top_k: int | None = None

    def sampling(self, own: Sampling) -> Sampling:
        if self.greedy:
            return Sampling(temp=0.0, temp_text=0.0)
        default = Sampling() if self.greedy is False and own.temp == own.temp_text == 0 else own
        return Sampling(
            default.temp if self.temperature is None else self.temperature,
            default.temp_text if self.text_temperature is None else self.text_temperature,
            default.top_k if self.top_k is None else self.top_k,
            default.top_k_text if self.text_top_k is None else self.text_top_k,
        )


@dataclass(slots=True)
class Voice:
    """A loaded model; `close` ends its thread and frees it."""

    engine: Engine
    tokenizer: Tokenizer
    facts: dict[str, Any]

    def describe(self) -> dict[str, Any]:
        """For the manifest: device, sampling, bytes a session, where the oracle embedding is from."""
        return dict(self.facts)


def load(settings: VoiceSettings, sessions: int, oracle: Oracle) -> Voice:
    """Read, check against the device's memory, load and warm up.

    Raises:
        BadCheckpoint: a file does not fit; UserError: the sessions do not fit; AssetFault: no hub;
        MissingExtra: the `moshi` package is not installed.
    """
    if importlib.util.find_spec("moshi") is None:
        raise MissingExtra("running Moshi or KAME here", "moshi")
    device = choose_device(settings.device)
    if device == "cpu":
        os.environ.setdefault("NO_TORCH_COMPILE", "1")  # compiling takes longer than it saves there
    checkpoint = read(settings.source, settings.revision)
    sampling = settings.sampling(checkpoint.sampling())
    check_memory(checkpoint, settings.dtype, device, sessions, oracle)
    weights, mimi_path = checkpoint.needed("moshi_name"), checkpoint.needed("mimi_name")
    tokenizer = load_tokenizer(checkpoint)
    lm = checkpoint.lm
    codebooks = max(lm["dep_q"], lm["n_q"] - lm["dep_q"])
    mimi = load_mimi(mimi_path, checkpoint.path("mimi_config_name"), codebooks, device)
    model = load_lm(lm, weights, settings.dtype, device, oracle)
    batch = Batch(model, mimi, sessions, sampling)
    engine = Engine(batch, int(model.existing_text_padding_id), int(model.text_card))
    try:
        engine.call(batch.warm_up)
    except BaseException:
        engine.close()
        raise
    facts: dict[str, Any] = {
        "device_used": device if device == "cpu" else device_name(device),
        "sampling": asdict(sampling),
        "session_bytes": session_bytes(checkpoint, settings.dtype),
    }
    if oracle == "from-text":
        facts["oracle_from_text_embedding"] = bool(model.oracle_from_text)
    return Voice(engine, tokenizer, facts)


def device_name(device: str) -> str:
    import torch

    return str(torch.cuda.get_device_name(device))


def choose_device(name: str | None) -> str:
    """Raises BadConfig: there is no such device here."""
    import torch

    if name is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    kind = name.partition(":")[0]
    if kind not in ("cpu", "cuda"):
        raise BadConfig(f"device '{name}': expected cpu, cuda or cuda:N.")
    if kind == "cuda" and not torch.cuda.is_available():
        raise BadConfig(f"device '{name}': torch sees no CUDA device here. Use --set device=cpu.")
    return name


def check_memory(checkpoint: Checkpoint, dtype: Dtype, device: str, sessions: int, oracle: Oracle) -> None:
    shapes = lm_shapes(checkpoint.source, checkpoint.lm, dtype, oracle)
    budget = memory.Budget(
        memory.weight_bytes(shapes, dtype),
        session_bytes(checkpoint, dtype),
        memory.free_bytes(device),
    )
    budget.check(sessions, device)


def session_bytes(checkpoint: Checkpoint, dtype: Dtype) -> int:
    """Key-value caches of one conversation, in the language model and in the codec."""
    codec = mimi_config(checkpoint.path("mimi_config_name"))
    return memory.kv_cache_bytes(checkpoint.lm, dtype) + memory.codec_cache_bytes(codec)


def load_tokenizer(checkpoint: Checkpoint) -> Any:
    import sentencepiece

    path = checkpoint.needed("tokenizer_name")
    try:
        tokenizer = sentencepiece.SentencePieceProcessor(str(path))
    except (OSError, RuntimeError) as error:
        raise BadCheckpoint(f"{path}: is not a SentencePiece model: {error}.") from None
    size, card = tokenizer.get_piece_size(), checkpoint.lm["text_card"]
    if size > card:
        raise BadCheckpoint(f"{path}: has {size} pieces; the model's text_card is {card}.")
    return tokenizer

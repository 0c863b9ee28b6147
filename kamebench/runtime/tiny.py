"""Small random checkpoints in the public layout: the model babbles, everything around it is real.

A language model of 17 codebook rows, a Mimi of 1920-sample frames and a SentencePiece model trained on
`TEXT`; together under 1 MB, written without a download.
"""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

TEXT_CARD = 60
TEXT = "the quick brown fox jumps over a lazy dog while seven wise owls quietly watch from above"

LM: dict[str, Any] = {
    "dim": 32,
    "text_card": TEXT_CARD,
    "existing_text_padding_id": 3,
    "card": 32,
    "num_heads": 2,
    "num_layers": 1,
    "hidden_scale": 4.125,
    "causal": True,
    "context": 30,
    "max_period": 10000,
    "gating": "silu",
    "norm": "rms_norm_f32",
    "positional_embedding": "rope",
    "depformer_dim": 16,
    "depformer_num_heads": 2,
    "depformer_num_layers": 1,
    "depformer_dim_feedforward": 32,
    "depformer_context": 8,
    "depformer_gating": "silu",
    "depformer_multi_linear": True,
    "depformer_pos_emb": "none",
    "depformer_weights_per_step": True,
}
SPEAKER: dict[str, Any] = LM | {"n_q": 16, "dep_q": 8, "delays": [0, 0, *[1] * 7, 0, *[1] * 7]}

WEIGHTS, MIMI, MIMI_CONFIG, TOKENIZER = (
    "model.safetensors",
    "mimi.safetensors",
    "mimi.json",
    "tokenizer.model",
)
# Far above the text embedding's, so that another oracle token changes what is said.
ORACLE_SCALE = 3.0


def write_checkpoint(
    folder: Path,
    lm: Mapping[str, Any] = SPEAKER,
    *,
    oracle: bool = False,
    relocatable: bool = False,
    seed: int = 3,
    **more: Any,
) -> None:
    """Write config.json and the files it names; the same seed gives the same weights.

    Args:
        folder: exists.
        lm: the language model's arguments.
        oracle: with a fourth, oracle, stream (KAME) instead of three (Moshi). All else stays the same.
        relocatable: config.json names the codec's configuration by its name, as a hub repository needs;
            otherwise by a file:// URL, without which `moshi.server` would look for it on the hub.
        more: goes into config.json.
    """
    import torch
    from moshi.models import loaders
    from safetensors.torch import save_file

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        config = mimi_config()
        mimi: Any = loaders.get_mimi(None, config, num_codebooks=8)
        for key, buffer in mimi.named_buffers():  # as made, all codes are zero and every sound the same code
            if key.endswith("embedding_sum"):
                buffer.normal_(std=0.03)
            elif key.endswith("cluster_usage"):
                buffer.fill_(1.0)
        model: Any = loaders.get_moshi_lm(None, dict(lm), device="cpu", dtype=torch.float32)
        state: dict[str, Any] = dict(model.state_dict())
        if oracle:
            state["oracle_emb.weight"] = torch.randn_like(state["text_emb.weight"]) * ORACLE_SCALE
    for name, tensors in ((MIMI, mimi.state_dict()), (WEIGHTS, state)):
        save_file({key: value.contiguous() for key, value in tensors.items()}, folder / name)
    (folder / MIMI_CONFIG).write_text(json.dumps(config, indent=1))
    write_tokenizer(folder)
    names = {
        "moshi_name": WEIGHTS,
        "mimi_name": MIMI,
        "mimi_config_name": MIMI_CONFIG if relocatable else f"file://{folder.resolve() / MIMI_CONFIG}",
        "tokenizer_name": TOKENIZER,
    }
    (folder / "config.json").write_text(json.dumps({**lm, **names, **more}, indent=1))


def mimi_config() -> dict[str, Any]:
    """The released codec's configuration with everything narrow; frame and rates stay."""
    from moshi.models import loaders

    config: dict[str, Any] = copy.deepcopy(loaders._mimi_config)  # pyright: ignore[reportPrivateUsage] named nowhere else
    width = {"input_dimension": 32, "output_dimension": 32}
    config["seanet"] |= {"dimension": 32, "n_filters": 2}
    config["quantizer"] |= {"dimension": 16, "n_q": 8, "bins": 32} | width
    config["transformer"] |= {"d_model": 32, "num_heads": 2, "num_layers": 1, "dim_feedforward": 32}
    config["transformer"] |= {"input_dimension": 32, "output_dimensions": [32]}
    return config


def write_tokenizer(folder: Path) -> Path:
    """A SentencePiece model of `TEXT_CARD` pieces, trained on `TEXT`."""
    import sentencepiece

    words, model = TEXT.split(), io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([" ".join(words[k:]) for k in range(len(words))]),
        model_writer=model,
        vocab_size=TEXT_CARD,
        model_type="bpe",
        pad_id=3,
        minloglevel=2,
        num_threads=1,
    )
    path = folder / TOKENIZER
    path.write_bytes(model.getvalue())
    return path

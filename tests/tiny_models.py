"""Tiny random models in the public layout, for what runs the `moshi` package's own code."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

TEXT_CARD = 60
TEXT = "the quick brown fox jumps over a lazy dog while seven wise owls quietly watch from above"

_LM: dict[str, Any] = {
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
RECOGNISER: dict[str, Any] = _LM | {
    "n_q": 8,
    "dep_q": 0,
    "delays": [0] * 9,
    "extra_heads_num_heads": 4,
    "extra_heads_dim": 6,
}
SPEAKER: dict[str, Any] = _LM | {"n_q": 16, "dep_q": 8, "delays": [0, 0, *[1] * 7, 0, *[1] * 7]}


def write_checkpoint(folder: Path, lm: dict[str, Any], **more: Any) -> None:
    """Random weights of a language model `lm`, a Mimi and a tokenizer; `more` goes into config.json."""
    import torch
    from moshi.models import loaders
    from safetensors.torch import save_file

    torch.manual_seed(3)
    mimi_config: dict[str, Any] = copy.deepcopy(loaders._mimi_config)
    mimi_config["seanet"] |= {"dimension": 32, "n_filters": 2}
    mimi_config["quantizer"] |= {"dimension": 16, "n_q": 8, "bins": 32}
    mimi_config["quantizer"] |= {"input_dimension": 32, "output_dimension": 32}
    mimi_config["transformer"] |= {"d_model": 32, "num_heads": 2, "num_layers": 1, "dim_feedforward": 32}
    mimi_config["transformer"] |= {"input_dimension": 32, "output_dimensions": [32]}
    mimi: Any = loaders.get_mimi(None, mimi_config, num_codebooks=8)
    for key, buffer in mimi.named_buffers():  # as made, all codebooks are zero and every sound the same code
        if key.endswith("embedding_sum"):
            buffer.normal_(std=0.03)
        elif key.endswith("cluster_usage"):
            buffer.fill_(1.0)
    model: Any = loaders.get_moshi_lm(None, dict(lm), device="cpu", dtype=torch.float32)
    for name, module in (("mimi", mimi), ("model", model)):
        state = {key: value.contiguous() for key, value in module.state_dict().items()}
        save_file(state, folder / f"{name}.safetensors")
    (folder / "mimi.json").write_text(json.dumps(mimi_config))
    write_tokenizer(folder)
    config = lm | {
        "moshi_name": "model.safetensors",
        "mimi_name": "mimi.safetensors",
        "mimi_config_name": (folder / "mimi.json").as_uri(),
        "tokenizer_name": "tokenizer.model",
        **more,
    }
    (folder / "config.json").write_text(json.dumps(config))


def write_tokenizer(folder: Path) -> Path:
    """A SentencePiece model of `TEXT_CARD` pieces, trained on `TEXT`."""
    import sentencepiece

    words = TEXT.split()
    (folder / "text.txt").write_text("\n".join(" ".join(words[k:]) for k in range(len(words))))
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "text.txt"),
        model_prefix=str(folder / "tokenizer"),
        vocab_size=TEXT_CARD,
        model_type="bpe",
        pad_id=3,
        minloglevel=2,
        num_threads=1,
    )
    return folder / "tokenizer.model"

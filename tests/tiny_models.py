"""Tiny random models in the public layout, for what runs the `moshi` package's own code."""

from __future__ import annotations

from typing import Any

from kamebench.runtime.tiny import LM, SPEAKER, TEXT, TEXT_CARD, write_checkpoint, write_tokenizer

__all__ = ["RECOGNISER", "SPEAKER", "TEXT", "TEXT_CARD", "write_checkpoint", "write_tokenizer"]

RECOGNISER: dict[str, Any] = LM | {
    "n_q": 8,
    "dep_q": 0,
    "delays": [0] * 9,
    "extra_heads_num_heads": 4,
    "extra_heads_dim": 6,
}

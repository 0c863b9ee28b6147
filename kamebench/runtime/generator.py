"""Moshi's generator over B rows, each with its own oracle token and its own random numbers.

The `moshi` package is used unchanged; three methods of the loaded model are wrapped:
- `text_emb` returns text_emb(token) + oracle_emb(oracle token of the row). The sum comes before the audio
  embeddings are added, which in bf16 decides whether the released model's path is kept.
- `forward_text` and `forward_depformer` return top-k logits / temperature + Gumbel noise of the row, whose
  argmax is a sample of the softmax (Gumbel 1954; Maddison et al. 2014, "A* sampling"). So the generator
  itself decodes greedily, and what a row draws depends on its seed and its steps alone.
All that changes from step to step lies in buffers written in place, as CUDA graphs need.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

NOTHING = -2  # what the generator returns in a row that has no output yet, or did not run


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are drawn. A temperature of 0 is greedy; defaults as the `moshi` package's generator."""

    temp: float = 0.8
    temp_text: float = 0.7
    top_k: int = 250
    top_k_text: int = 25


GREEDY = Sampling(temp=0.0, temp_text=0.0)


class Generator:
    """B rows; `close` gives the memory of their state back."""

    def __init__(self, model: Any, rows: int, sampling: Sampling) -> None:
        import torch
        from moshi.models.lm import LMGen

        self._noise = RowNoise(model, rows, sampling)
        self._oracle: Any = None
        if hasattr(model.text_emb, "oracle_tokens"):
            self._oracle = torch.full((rows, 1), model.existing_text_padding_id, device=model.device)
            model.text_emb.oracle_tokens = self._oracle
        self.text_logits: Any = None  # of the last step, [B, 1, 1, text_card]; meaningful when greedy
        self._lm: Any = LMGen(
            model, use_sampling=False, support_out_of_sync=True, on_text_logits_hook=self._keep
        )
        self._active: list[bool] | None = None
        self._streams = ExitStack()
        self._streams.enter_context(self._lm.streaming(rows))

    def _keep(self, logits: Any) -> None:
        self.text_logits = logits

    def reset(self, seeds: Mapping[int, int]) -> None:
        """Make rows forget everything; row -> seed of its random numbers."""
        import torch

        mask = torch.zeros(self._noise.rows, dtype=torch.bool)
        mask[list(seeds)] = True
        self._lm.reset_streaming(mask)
        self._active = None  # a reset makes its rows active
        self._noise.seed(seeds)

    def step(self, codes: Any, active: Sequence[bool], oracle: Sequence[int]) -> Any:
        """One step of the active rows; the others stand still.

        Args:
            codes: user audio, int64 [B, K, 1].
            oracle: token of each row; ignored by a model without an oracle embedding.

        Returns:
            int64 [B, 1 + dep_q]: text, then audio; `NOTHING` where a row has no output.
        """
        import torch

        self._noise.draw(active)
        if self._oracle is not None:
            self._oracle.copy_(torch.tensor(oracle)[:, None])
        if list(active) != self._active:  # every module keeps the mask: not to be set without need
            self._active = list(active)
            self._lm.set_exec_mask(torch.tensor(active))
        return self._lm.step(codes)[:, :, 0]

    def close(self) -> None:
        self._streams.close()
        self._noise.detach()


class RowNoise:
    """Wraps a model's two heads so that greedy decoding samples, with random numbers of the row's own."""

    def __init__(self, model: Any, rows: int, sampling: Sampling) -> None:
        import torch

        self.rows, self._model = rows, model
        text_card = model.text_linear.out_features
        text_k = min(sampling.top_k_text or text_card, text_card) if sampling.temp_text > 0 else 0
        audio_k = min(sampling.top_k or model.card, model.card) if sampling.temp > 0 else 0
        self._width = text_k + model.dep_q * audio_k
        self._generators = [torch.Generator() for _ in range(rows)]
        self._host = torch.zeros(rows, self._width)
        self._noise = torch.zeros(rows, self._width, device=model.device)
        if text_k:
            forward_text = model.forward_text

            def sampled_text(*args: Any) -> Any:
                out, logits = forward_text(*args)
                return out, perturbed(logits, self._noise[:, :text_k], sampling.temp_text)

            model.forward_text = sampled_text
        if audio_k:
            forward_depth = model.forward_depformer

            def sampled_audio(codebook: int, *args: Any) -> Any:
                start = text_k + codebook * audio_k
                noise = self._noise[:, start : start + audio_k]
                return perturbed(forward_depth(codebook, *args), noise, sampling.temp)

            model.forward_depformer = sampled_audio

    def seed(self, seeds: Mapping[int, int]) -> None:
        for row, seed in seeds.items():
            self._generators[row].manual_seed(seed)

    def draw(self, active: Sequence[bool]) -> None:
        """New Gumbel noise for the active rows; drawn on the CPU, so the same on every device."""
        if not self._width:
            return
        for row, runs in enumerate(active):
            if runs:
                self._host[row].exponential_(generator=self._generators[row]).log_().neg_()
        self._noise.copy_(self._host)

    def detach(self) -> None:
        """Give the model its own methods back."""
        for name in ("forward_text", "forward_depformer"):
            self._model.__dict__.pop(name, None)


def perturbed(logits: Any, noise: Any, temperature: float) -> Any:
    """Logits [B, 1, 1, card] -> float32 of the same shape whose argmax is a sample.

    noise: Gumbel, [B, k], for the k likeliest tokens; all others are excluded.
    """
    import torch

    values, tokens = torch.topk(logits.float() / temperature, noise.shape[-1])
    out = torch.full_like(logits, float("-inf"), dtype=torch.float32)
    return out.scatter_(-1, tokens, values + noise[:, None, None])


def add_oracle(model: Any, state: Mapping[str, Any]) -> None:
    """Give a Moshi model its oracle embedding: `state` of it, or a copy of the text embedding when empty."""
    import torch

    class WithOracle(torch.nn.Module):
        """text_emb(token) + oracle_emb(oracle token of the row)."""

        def __init__(self, text: Any, oracle: Any, tokens: Any) -> None:
            super().__init__()
            self.text, self.oracle, self.oracle_tokens = text, oracle, tokens

        def forward(self, tokens: Any) -> Any:
            return self.text(tokens) + self.oracle(self.oracle_tokens)

    oracle = copy.deepcopy(model.text_emb)
    if state:
        oracle.load_state_dict(dict(state), assign=True)
    tokens = torch.full((1, 1), model.existing_text_padding_id, device=model.device)
    model.text_emb = WithOracle(model.text_emb, oracle, tokens)

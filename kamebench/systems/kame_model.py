"""KAME on the `moshi` package's unchanged generator, one conversation at a time.

The text embedding is wrapped so that it returns text_emb(token) + oracle_emb(oracle token): the sum comes
before the audio embeddings are added, which in bf16 decides whether the released model's path is kept.
"""

from __future__ import annotations

import asyncio
import copy
import json
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from kamebench.audio import Pcm
from kamebench.errors import BadCheckpoint, SystemFault
from kamebench.oracle.loop import OracleUpdate, Tokenizer
from kamebench.systems.kame_session import Stepped

ORACLE_KEY = "oracle_emb.weight"


class OracleTrack:
    """The oracle stream of one conversation: see `kamebench.oracle.rebuild` for the rule."""

    def __init__(self, pad_id: int, initial_id: int) -> None:
        self._pad, self._initial = pad_id, initial_id
        self._origin: int | None = None
        self._tokens: list[int] = []

    def apply(self, step: int, updates: Sequence[OracleUpdate]) -> int:
        """Apply updates before `step`; the token it consumes."""
        for update in updates:
            if update.reset or self._origin is None:
                self._origin, self._tokens = step, [self._initial]
            self._tokens += update.tokens
        at = -1 if self._origin is None else step - self._origin
        return self._tokens[at] if 0 <= at < len(self._tokens) else self._pad


class KameModel:
    """Weights, codec and tokenizer, loaded once; `open` gives them to one conversation at a time."""

    def __init__(self, weights: str, revision: str | None, dtype: str, device: str | None) -> None:
        self._weights, self._revision, self._dtype, self._device = weights, revision, dtype, device
        self._streams = ExitStack()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="kame")
        self._taken = False
        self.tokenizer: Tokenizer | None = None
        self.pad_id = self.initial_id = 0
        self.from_text = False

    def start(self) -> None:
        """Load everything.

        Raises:
            BadCheckpoint: a file is missing or does not fit the model.
        """
        import torch
        from safetensors import SafetensorError

        self._device = self._device or ("cuda" if torch.cuda.is_available() else "cpu")
        if self._device == "cpu":
            os.environ.setdefault("NO_TORCH_COMPILE", "1")  # compiling takes longer than it saves there
        try:
            self._load()
        except (OSError, RuntimeError, KeyError, ValueError, TypeError, SafetensorError) as error:
            raise BadCheckpoint(
                f"{self._weights}: cannot be loaded as KAME: {error}. Name a hub repository or a folder "
                "with a Moshi or KAME model's config.json, weights, codec and tokenizer."
            ) from error

    def _load(self) -> None:
        import torch
        from moshi.models.lm import LMGen
        from moshi.models.loaders import get_moshi_lm
        from safetensors.torch import load_file

        dtype = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[self._dtype]
        info = checkpoint_info(self._weights, self._revision)
        state = {
            key: value.to(dtype) if value.dtype.is_floating_point else value
            for key, value in load_file(str(info.moshi_weights), device=str(self._device)).items()
        }
        oracle = state.pop(ORACLE_KEY, None)
        self.from_text = oracle is None
        model: Any = get_moshi_lm(None, info.lm_config, device="meta", dtype=dtype)
        model.load_state_dict(state, assign=True)
        model.eval()
        self._oracle_now = add_oracle(model, oracle)
        self._mimi: Any = info.get_mimi(device=str(self._device))
        self._generator: Any = LMGen(model, **info.lm_gen_config)
        self.tokenizer = info.get_text_tokenizer()
        self.pad_id, self.initial_id = int(model.existing_text_padding_id), int(model.text_card)
        for module in (self._mimi, self._generator):
            self._streams.enter_context(module.streaming(1))

    async def open(self, seed: int) -> KameConversation:
        """A conversation that remembers nothing of earlier ones.

        Raises:
            SystemFault: another one is open.
        """
        if self._taken:
            raise SystemFault("the model holds one conversation at a time", kind="busy", retryable=True)
        self._taken = True
        await self._call(lambda: self._reset(seed))
        return KameConversation(self)

    def _reset(self, seed: int) -> None:
        import torch

        torch.manual_seed(seed)
        self._mimi.reset_streaming()
        self._generator.reset_streaming()

    def release(self) -> None:
        self._taken = False

    async def step(self, pcm: Pcm, oracle_token: int, first: bool) -> tuple[Pcm | None, int | None]:
        return await self._call(lambda: self._step(pcm, oracle_token, first))

    def _step(self, pcm: Pcm, oracle_token: int, first: bool) -> tuple[Pcm | None, int | None]:
        import torch

        with torch.no_grad():
            audio = torch.from_numpy(np.array(pcm, np.float32))[None, None].to(self._device)
            codes = self._mimi.encode(audio)
            if first:  # as the released server: its left padding is applied again to the next frame
                self._mimi.reset_streaming()
            self._oracle_now.fill_(oracle_token)
            tokens = self._generator.step(codes)
            if tokens is None:
                return None, None
            out = self._mimi.decode(tokens[:, 1:])[0, 0].float().clamp(-1, 1).cpu().numpy()
            return out, int(tokens[0, 0, 0].item())

    async def _call(self, function: Any) -> Any:
        """Run on the model's own thread; when cancelled, wait for it to end first."""
        future = asyncio.get_running_loop().run_in_executor(self._thread, function)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            await asyncio.wait({future})
            raise

    def close(self) -> None:
        self._streams.close()
        self._thread.shutdown()
        self._mimi = self._generator = None


class KameConversation:
    """One conversation's place on the model."""

    def __init__(self, model: KameModel) -> None:
        self._model = model
        self._track = OracleTrack(model.pad_id, model.initial_id)
        self._steps = 0
        self._open = True

    async def step(self, pcm: Pcm, updates: Sequence[OracleUpdate]) -> Stepped:
        oracle = self._track.apply(self._steps, updates)
        audio, text = await self._model.step(pcm, oracle, self._steps == 0)
        self._steps += 1
        return Stepped(audio, text, oracle)

    async def aclose(self) -> None:
        if self._open:
            self._open = False
            self._model.release()


def add_oracle(model: Any, weight: Any | None) -> Any:
    """Give a Moshi model its oracle embedding, `weight` [text_card + 1, dim] or a copy of the text embedding.

    Returns:
        int64 [1, 1]: the oracle token of the next step, to be set in place.
    """
    import torch

    class WithOracle(torch.nn.Module):
        """text_emb(token) + oracle_emb(oracle token of the step)."""

        def __init__(self, text: Any, now: Any) -> None:
            super().__init__()
            self.text, self.oracle, self.now = text, copy.deepcopy(text), now

        def forward(self, tokens: Any) -> Any:
            return self.text(tokens) + self.oracle(self.now)

    now = torch.full((1, 1), model.existing_text_padding_id, device=model.text_emb.weight.device)
    wrapped = WithOracle(model.text_emb, now)
    if weight is not None:
        wrapped.oracle.load_state_dict({"weight": weight})
    model.text_emb = wrapped
    return now


def checkpoint_info(source: str, revision: str | None) -> Any:
    """The `moshi` package's description of a repository's or folder's files."""
    from moshi.models.loaders import CheckpointInfo

    folder = Path(source)
    if not folder.is_dir():
        return CheckpointInfo.from_hf_repo(source, revision=revision)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    mimi_config = config.get("mimi_config_name")
    return CheckpointInfo.from_hf_repo(
        source,
        moshi_weights=folder / config["moshi_name"],
        mimi_weights=folder / config["mimi_name"],
        tokenizer=folder / config["tokenizer_name"],
        config_path=folder / "config.json",
        mimi_config_path=folder / str(mimi_config).removeprefix("file://") if mimi_config else None,
    )

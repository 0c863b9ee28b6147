"""Golden cases: recorded steps of the reference implementation, replayed through this runtime.

A case is a folder: lm_config.json, model.safetensors, input.safetensors (`user_codes` int64 [1, K, T]),
case.json (dtype, frames, events) and expected.safetensors: `tokens` int64 [1, 1 + dep_q, T], -3 where the
reference returned nothing; `text_logits` float32 [1, 1, T, text_card]; `oracle_tokens` int64 [T]; and both
again as `*_no_oracle` for the same input with no events. Greedy, batch 1, CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kamebench.errors import BadConfig
from kamebench.runtime.checkpoint import Dtype, load_lm, read_config
from kamebench.runtime.generator import GREEDY, NOTHING, Generator
from kamebench.runtime.oracle_stream import OracleStream

LOGIT_TOLERANCE = 1e-4
NOT_YET = -3
DTYPES: dict[str, Dtype] = {
    "float32": "fp32",
    "fp32": "fp32",
    "bfloat16": "bf16",
    "bf16": "bf16",
    "float16": "fp16",
    "fp16": "fp16",
}


class Event(BaseModel):
    """What happened to the oracle before a frame's step."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    frame: int = Field(ge=0)
    action: Literal["reset", "append"]
    tokens: tuple[int, ...] = ()


class Case(BaseModel):
    """case.json."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    dtype: Literal["float32", "fp32", "bfloat16", "bf16", "float16", "fp16"]
    frames: int = Field(ge=1)
    events: tuple[Event, ...] = ()


class Verdict(BaseModel):
    """What a replay found. Logit differences are the largest absolute ones, None without recorded logits."""

    model_config = ConfigDict(frozen=True)

    name: str
    frames: int
    dtype: str
    token_mismatches: int
    token_mismatches_no_oracle: int
    oracle_mismatches: int
    logit_difference: float | None
    logit_difference_no_oracle: float | None

    @property
    def exact(self) -> bool:
        """No token differs and no logit by more than `LOGIT_TOLERANCE`."""
        differences = (self.logit_difference, self.logit_difference_no_oracle)
        return (
            not (self.token_mismatches or self.token_mismatches_no_oracle or self.oracle_mismatches)
            and all(d is None or d <= LOGIT_TOLERANCE for d in differences)  # NaN is no match
        )

    def line(self) -> str:
        """One line for people."""
        logits = ", ".join(
            f"{value:.2g}{label}"
            for value, label in (
                (self.logit_difference, ""),
                (self.logit_difference_no_oracle, " without oracle"),
            )
            if value is not None
        )
        return (
            f"{'exact' if self.exact else 'DIFFERS'}  {self.name}: {self.frames} frames, {self.dtype}; "
            f"token mismatches {self.token_mismatches}, {self.token_mismatches_no_oracle} without oracle; "
            f"oracle token mismatches {self.oracle_mismatches}; "
            f"largest logit difference {logits or 'not recorded'}"
        )

    def as_json(self) -> dict[str, Any]:
        return {**self.model_dump(), "exact": self.exact}


def find_cases(folder: Path) -> list[Path]:
    """The folder itself, or the cases in it."""
    inside = sorted(path.parent for path in folder.glob("*/case.json"))
    return inside if inside and not (folder / "case.json").exists() else [folder]


def verify(folder: Path) -> Verdict:
    """Replay a case, with its events and without.

    Raises:
        BadConfig: a file is missing or not in the format; BadCheckpoint: the weights do not fit.
    """
    case = read_case(folder)
    codes = tensors(folder / "input.safetensors", ("user_codes",))["user_codes"]
    expected = tensors(folder / "expected.safetensors", ("tokens", "oracle_tokens"))
    if codes.dim() != 3 or codes.shape[0] != 1 or codes.shape[-1] != case.frames:
        raise BadConfig(
            f"{folder}: user_codes has shape {list(codes.shape)}; expected [1, codebooks, {case.frames}]."
        )
    if codes.is_floating_point() or codes.is_complex():
        raise BadConfig(f"{folder}: user_codes is {codes.dtype}; expected int64.")
    config = read_config(folder / "lm_config.json")
    model = load_lm(config, folder / "model.safetensors", DTYPES[case.dtype], "cpu", "from-text")
    tokens, logits, consumed = replay(model, codes, case.events)
    mismatches = count_mismatches(folder, "tokens", tokens, expected["tokens"])
    oracle = count_mismatches(folder, "oracle_tokens", consumed, expected["oracle_tokens"])
    difference = largest_difference(folder, "text_logits", logits, expected)
    tokens, logits, _ = replay(model, codes, ())
    without = expected.get("tokens_no_oracle")
    return Verdict(
        name=folder.resolve().name,
        frames=case.frames,
        dtype=case.dtype,
        token_mismatches=mismatches,
        token_mismatches_no_oracle=0
        if without is None
        else count_mismatches(folder, "tokens_no_oracle", tokens, without),
        oracle_mismatches=oracle,
        logit_difference=difference,
        logit_difference_no_oracle=largest_difference(folder, "text_logits_no_oracle", logits, expected),
    )


def read_case(folder: Path) -> Case:
    path = folder / "case.json"
    try:
        return Case.model_validate_json(path.read_bytes())
    except OSError as error:
        raise BadConfig(
            f"{path}: cannot be read: {error.strerror}. A case is a folder with case.json."
        ) from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BadConfig(f"{path}: {where or 'file'}: {first['msg']}.") from None


def tensors(path: Path, needed: Sequence[str]) -> dict[str, Any]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        found: dict[str, Any] = load_file(path)
    except (OSError, SafetensorError) as error:
        raise BadConfig(f"{path}: cannot be read as safetensors: {error}.") from None
    for name in needed:
        if name not in found:
            raise BadConfig(f"{path}: has no tensor '{name}'; it holds {', '.join(sorted(found))}.")
    return found


def replay(model: Any, codes: Any, events: Sequence[Event]) -> tuple[Any, Any, Any]:
    """Greedy steps in a batch of one.

    Args:
        codes: int64 [1, K, T].
        events: for a frame in the order given.

    Returns:
        tokens int64 [1, 1 + dep_q, T], logits float32 [1, 1, T, text_card], consumed oracle tokens int64 [T].
    """
    import torch

    if codes.shape[1] < model.n_q - model.dep_q or int(codes.min()) < -1 or int(codes.max()) > model.card:
        raise BadConfig(f"user_codes must be {model.n_q - model.dep_q} codebooks of ids up to {model.card}.")
    stream = OracleStream(model.existing_text_padding_id, model.text_card)
    generator = Generator(model, 1, GREEDY)
    tokens: list[Any] = []
    logits: list[Any] = []
    consumed: list[int] = []
    try:
        for step in range(codes.shape[-1]):
            for event in events:
                if event.frame == step:
                    apply(stream, event, model.text_card)
            consumed.append(stream.at(step))
            out = generator.step(codes[:, :, step : step + 1], [True], consumed[-1:])
            tokens.append(torch.where(out == NOTHING, NOT_YET, out))
            logits.append(generator.text_logits.float()[:, :, 0].clone())
    finally:
        generator.close()
    return torch.stack(tokens, -1), torch.stack(logits, 2), torch.tensor(consumed)


def apply(stream: OracleStream, event: Event, text_card: int) -> None:
    if any(not 0 <= token <= text_card for token in event.tokens):
        raise BadConfig(f"event at frame {event.frame}: tokens must be in [0, {text_card}].")
    if event.action == "reset":
        stream.reset(event.frame)
    else:
        stream.append(event.frame, event.tokens)


def count_mismatches(folder: Path, name: str, found: Any, expected: Any) -> int:
    if found.shape != expected.shape:
        raise BadConfig(
            f"{folder}: {name} has shape {list(expected.shape)}; the replay gives {list(found.shape)}."
        )
    return int((found != expected).sum())


def largest_difference(folder: Path, name: str, found: Any, expected: dict[str, Any]) -> float | None:
    wanted = expected.get(name)
    if wanted is None:
        return None
    if found.shape != wanted.shape:
        raise BadConfig(
            f"{folder}: {name} has shape {list(wanted.shape)}; the replay gives {list(found.shape)}."
        )
    return float((found - wanted.float()).abs().max())

"""Moshi and KAME checkpoints in the public layout, from a folder or a hub repository, checked by name.

Layout: config.json (arguments of the language model, `moshi_name`, `mimi_name`, `tokenizer_name`, optional
`mimi_config_name`, `lm_gen_config`, `model_type`, `lora_name`), safetensors weights, Mimi, SentencePiece.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from kamebench.errors import AssetFault, BadCheckpoint
from kamebench.runtime.generator import Sampling, add_oracle

Dtype = Literal["bf16", "fp16", "fp32"]
Oracle = Literal["none", "from-text"]
ORACLE_PREFIX = "oracle_emb."
# Keys of config.json that are not arguments of the language model.
NOT_LM = (
    "moshi_name",
    "mimi_name",
    "mimi_config_name",
    "tokenizer_name",
    "lora_name",
    "model_type",
    "lm_gen_config",
    "tts_config",
    "stt_config",
    "model_id",
)
COUNTS = ("dim", "num_heads", "num_layers", "n_q", "dep_q", "card", "text_card", "context")
NEEDED = (*COUNTS, "delays")
OTHER_MODELS = ("hibiki", "tts", "stt")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A config that was read and checked, and where the files beside it come from."""

    source: str
    revision: str | None
    lm: dict[str, Any]
    files: dict[str, str] = field(default_factory=dict)
    generation: dict[str, Any] = field(default_factory=dict)

    def path(self, name: str) -> Path | None:
        """The file that config.json calls `name`, fetched where it comes from a hub.

        Raises:
            BadCheckpoint: there is no such file; AssetFault: the hub cannot be reached.
        """
        file = self.files.get(name)
        if file is None:
            return None
        if file.startswith("file://"):
            path = Path(file.removeprefix("file://"))
        elif file.startswith("hf://"):  # hf://owner/name/path of another repository
            owner, repository, rest = file.removeprefix("hf://").split("/", 2)
            return fetch(f"{owner}/{repository}", rest, None)
        elif Path(self.source).is_dir():
            path = Path(self.source) / file
        else:
            return fetch(self.source, file, self.revision)
        if not path.is_file():
            raise BadCheckpoint(
                f"{self.source}: config.json names {file} as {name}, and there is no such file."
            )
        return path

    def needed(self, name: str) -> Path:
        """As `path`, for a file that every checkpoint has."""
        path = self.path(name)
        if path is None:
            raise BadCheckpoint(f"{self.source}: config.json has no '{name}'.")
        return path

    def sampling(self) -> Sampling:
        """What `lm_gen_config` says; the `moshi` package's defaults where it is silent.

        Raises:
            BadCheckpoint: it asks for a way of generating that is not offered here.
        """
        given = dict(self.generation)
        greedy = not given.pop("use_sampling", True)
        try:
            sampling = Sampling(**given)
        except TypeError:
            known = ", ".join(Sampling.__dataclass_fields__)
            raise BadCheckpoint(
                f"{self.source}: lm_gen_config has {', '.join(given)}; supported: use_sampling, {known}."
            ) from None
        return Sampling(0.0, 0.0) if greedy else sampling


class NoSuchFile(BadCheckpoint):
    """The repository is there, and the file is not."""


def config_before_configs() -> dict[str, Any]:
    """What the `moshi` package assumes of a repository without config.json: the first Moshi, 7 B."""
    from moshi.models import loaders

    names = {
        "moshi_name": loaders.MOSHI_NAME,
        "mimi_name": loaders.MIMI_NAME,
        "tokenizer_name": loaders.TEXT_TOKENIZER_NAME,
    }
    return {**loaders._lm_kwargs, **names}  # pyright: ignore[reportPrivateUsage] named nowhere else


def fetch(repository: str, name: str, revision: str | None) -> Path:
    """A file of a hub repository, from the hub's cache when it is there."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import (
        EntryNotFoundError,
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    at = f"{repository}@{revision}" if revision else repository
    try:
        return Path(hf_hub_download(repository, name, revision=revision))
    except HFValidationError:
        raise BadCheckpoint(f"{repository}: is neither a folder nor the name of a hub repository.") from None
    except RevisionNotFoundError:
        raise BadCheckpoint(f"{at}: the repository has no such revision.") from None
    except RepositoryNotFoundError:
        raise BadCheckpoint(
            f"{at}: no such repository, or it asks for a login the hub client lacks."
        ) from None
    except LocalEntryNotFoundError as error:
        raise AssetFault(
            f"{at}: {name} cannot be fetched: {error}", kind="unreachable", retryable=True
        ) from None
    except EntryNotFoundError:
        raise NoSuchFile(f"{at}: has no file {name}.") from None
    except (HfHubHTTPError, OSError) as error:
        raise AssetFault(f"{at}: {name} cannot be fetched: {error}", kind="hub", retryable=True) from error


def read(source: str, revision: str | None = None) -> Checkpoint:
    """Read config.json alone.

    Raises:
        BadCheckpoint: it is missing, not JSON, or of another model.
    """
    if Path(source).is_dir():
        path = Path(source) / "config.json"
        if not path.is_file():
            raise BadCheckpoint(f"{source}: has no config.json. Name a folder in Moshi's public layout.")
        config = read_config(path)
    else:
        try:
            config = read_config(fetch(source, "config.json", revision))
        except NoSuchFile:
            config = config_before_configs()
    files = {name: str(config[name]) for name in NOT_LM if name.endswith("_name") and config.get(name)}
    if "lora_name" in files:
        raise BadCheckpoint(
            f"{source}: lora_name = {files['lora_name']}. Merge the LoRA into the weights first."
        )
    lm = {key: value for key, value in config.items() if key not in NOT_LM}
    return Checkpoint(source, revision, lm, files, dict(config.get("lm_gen_config") or {}))


def read_config(path: Path) -> dict[str, Any]:
    """A config of Moshi's language model.

    Raises:
        BadCheckpoint: naming the key that is missing or wrong.
    """
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadCheckpoint(f"{path}: cannot be read: {error.strerror}.") from None
    except ValueError as error:
        raise BadCheckpoint(f"{path}: is not JSON ({error}).") from None
    if not isinstance(config, dict):
        raise BadCheckpoint(f"{path}: expected a JSON object, found {type(config).__name__}.")
    kind: Any = config.get("model_type")
    if kind in OTHER_MODELS:
        raise BadCheckpoint(f"{path}: model_type is '{kind}', a model that does not converse.")
    check_sizes(path, config)
    for key in ("conditioners", "fuser"):
        if config.get(key):
            raise BadCheckpoint(f"{path}: has '{key}': a conditioned model, which is not offered here.")
    n_q, dep_q, delays = config["n_q"], config["dep_q"], config["delays"]
    if not dep_q or n_q <= dep_q:
        raise BadCheckpoint(
            f"{path}: dep_q = {dep_q} of n_q = {n_q}: a conversing model both speaks and hears codebooks."
        )
    if len(delays) != n_q + 1:
        raise BadCheckpoint(f"{path}: delays has {len(delays)} entries; n_q = {n_q} needs {n_q + 1}.")
    return config


def check_sizes(path: Path, config: dict[str, Any]) -> None:
    for key in NEEDED:
        if key not in config:
            raise BadCheckpoint(f"{path}: has no '{key}': the config of another model than Moshi or KAME.")
    for key in COUNTS:
        if type(config[key]) is not int or config[key] < 0:
            raise BadCheckpoint(f"{path}: {key} = {config[key]!r}; expected a whole number.")
    if not isinstance(config["delays"], list) or any(type(d) is not int or d < 0 for d in config["delays"]):
        raise BadCheckpoint(f"{path}: delays = {config['delays']!r}; expected a list of whole numbers.")


def torch_dtype(dtype: Dtype) -> Any:
    import torch

    return {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}[dtype]


def empty_lm(where: str, lm: Mapping[str, Any], dtype: Dtype) -> Any:
    """The model of a config, without memory for its tensors.

    Raises:
        BadCheckpoint: the config's arguments do not make one.
    """
    from moshi.models.loaders import get_moshi_lm

    try:
        return get_moshi_lm(None, dict(lm), device="meta", dtype=torch_dtype(dtype))
    except (TypeError, ValueError, AssertionError, RuntimeError, KeyError) as error:
        raise BadCheckpoint(f"{where}: the config does not make a Moshi model: {error}.") from error


def with_oracle(model: Any, oracle: Oracle) -> dict[str, tuple[int, ...]]:
    """Name -> shape of the tensors that a checkpoint of this model has."""
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    if oracle == "from-text":
        for name in list(shapes):
            if name.startswith("text_emb."):
                shapes[ORACLE_PREFIX + name.removeprefix("text_emb.")] = shapes[name]
    return shapes


def lm_shapes(where: str, lm: Mapping[str, Any], dtype: Dtype, oracle: Oracle) -> dict[str, tuple[int, ...]]:
    """Name -> shape of the language model's tensors, from the config alone."""
    return with_oracle(empty_lm(where, lm, dtype), oracle)


def load_lm(config: Mapping[str, Any], weights: Path, dtype: Dtype, device: str, oracle: Oracle) -> Any:
    """The language model of a config with the weights of a file, floating point cast to `dtype`.

    Args:
        oracle: 'from-text': weights with an oracle embedding get theirs, others a copy of the text
            embedding; 'none': three streams, weights with an oracle embedding are refused.

    Raises:
        BadCheckpoint: naming the tensor or the setting that does not fit.
    """
    kind = torch_dtype(dtype)
    model = empty_lm(str(weights.parent), config, dtype)
    state = read_tensors(weights, with_oracle(model, oracle), ORACLE_PREFIX, kind, device)
    oracle_state = {
        name.removeprefix(ORACLE_PREFIX): state.pop(name)
        for name in list(state)
        if name.startswith(ORACLE_PREFIX)
    }
    model.load_state_dict(state, assign=True)
    model.eval()
    if oracle == "from-text":
        add_oracle(model, oracle_state)
        model.oracle_from_text = not oracle_state
    return model


def read_tensors(
    path: Path, shapes: Mapping[str, tuple[int, ...]], optional: str, dtype: Any, device: str
) -> dict[str, Any]:
    """The tensors of a safetensors file, held against the names and shapes that a model has.

    Tensors whose name begins with `optional` may be absent, all together.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            names = list(file.keys())
            check_names(path, names, shapes, optional)
            for name in names:
                found = tuple(file.get_slice(name).get_shape())
                if found != shapes[name]:
                    raise BadCheckpoint(
                        f"{path}: {name} has shape {list(found)}; the config makes it {list(shapes[name])}."
                    )
            return {name: cast(file.get_tensor(name), dtype, device) for name in names}
    except (SafetensorError, OSError) as error:
        raise BadCheckpoint(f"{path}: is truncated or not a safetensors file: {error}.") from None


def check_names(path: Path, names: list[str], shapes: Mapping[str, tuple[int, ...]], optional: str) -> None:
    needed = shapes
    if not any(name.startswith(optional) for name in names):
        needed = {name: shape for name, shape in shapes.items() if not name.startswith(optional)}
    missing, extra = sorted(needed.keys() - set(names)), sorted(set(names) - shapes.keys())
    if missing:
        raise BadCheckpoint(
            f"{path}: lacks tensor {missing[0]}{and_more(missing)}, which the config asks for."
        )
    if extra:
        hint = " It is a KAME checkpoint: run it as system kame." if extra[0].startswith(optional) else ""
        raise BadCheckpoint(f"{path}: has tensor {extra[0]}{and_more(extra)}, unknown to the config.{hint}")


def and_more(names: list[str]) -> str:
    return f" and {len(names) - 1} more" if len(names) > 1 else ""


def cast(tensor: Any, dtype: Any, device: str) -> Any:
    return tensor.to(device=device, dtype=dtype if tensor.dtype.is_floating_point else tensor.dtype)

"""Recorded steps of the reference implementation, and that a replay which differs is noticed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from kamebench.cli.verify_golden import command
from kamebench.errors import BadCheckpoint, BadConfig
from kamebench.runtime.golden import verify

# torch 2.13 deprecates a decorator that it uses itself.
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")
CASES = ["four_stream_fp32", "delay2_fp32", "legacy_three_stream_fp32"]


@pytest.fixture(autouse=True)
def moshi() -> Iterator[None]:
    pytest.importorskip("moshi.models.lm")
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # small products: more threads only wait for each other
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def case(shared: Path, tmp_path: Path) -> Path:
    """A copy of a case, to be changed."""
    return shutil.copytree(shared / "golden" / "delay2_fp32", tmp_path / "case")


@pytest.mark.parametrize("name", CASES)
def test_recorded_cases_are_exact(shared: Path, name: str) -> None:
    verdict = verify(shared / "golden" / name)
    assert verdict.exact, verdict.line()
    assert verdict.logit_difference is not None
    assert verdict.logit_difference < 1e-5


def change(case: Path, tensor: str, at: tuple[int, ...], by: float) -> None:
    from safetensors.torch import load_file, save_file

    found = load_file(case / "expected.safetensors")
    found[tensor][at] += by
    save_file(found, case / "expected.safetensors")


@pytest.mark.parametrize(
    ("tensor", "at", "by", "count"),
    [
        ("tokens", (0, 3, 40), 1, "token_mismatches"),
        ("tokens_no_oracle", (0, 0, 63), 1, "token_mismatches_no_oracle"),
        ("oracle_tokens", (5,), 1, "oracle_mismatches"),
        ("text_logits", (0, 0, 9, 7), 3e-4, None),
        ("text_logits_no_oracle", (0, 0, 0, 0), float("nan"), None),
    ],
)
def test_one_changed_number_is_a_mismatch(
    case: Path, tensor: str, at: tuple[int, ...], by: float, count: str | None
) -> None:
    change(case, tensor, at, by)
    verdict = verify(case)
    assert not verdict.exact
    for name in ("token_mismatches", "token_mismatches_no_oracle", "oracle_mismatches"):
        assert getattr(verdict, name) == (1 if name == count else 0)


def test_exit_codes_and_json(case: Path) -> None:
    run = CliRunner()
    good = run.invoke(command, [str(case.parent), "--json"])
    assert good.exit_code == 0
    (found,) = json.loads(good.output)
    assert (found["name"], found["exact"], found["token_mismatches"]) == ("case", True, 0)
    change(case, "tokens", (0, 1, 20), 1)
    bad = run.invoke(command, [str(case)])
    assert bad.exit_code == 1
    assert "DIFFERS" in bad.output


def test_an_event_left_out_is_noticed(case: Path) -> None:
    recorded = json.loads((case / "case.json").read_text())
    recorded["events"].pop(0)
    (case / "case.json").write_text(json.dumps(recorded))
    verdict = verify(case)
    assert verdict.oracle_mismatches >= 5
    assert verdict.token_mismatches > 0
    assert verdict.token_mismatches_no_oracle == 0


def _truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def _as_float(path: Path) -> None:
    from safetensors.torch import load_file, save_file

    save_file({"user_codes": load_file(path)["user_codes"].float()}, path)


@pytest.mark.parametrize(
    ("name", "damage", "error", "says"),
    [
        ("case.json", Path.unlink, BadConfig, "case.json"),
        ("case.json", lambda path: path.write_text('{"frames": 3}'), BadConfig, "dtype"),
        ("input.safetensors", _truncate, BadConfig, "input.safetensors"),
        ("input.safetensors", _as_float, BadConfig, "torch.float32; expected int64"),
        ("expected.safetensors", Path.unlink, BadConfig, "expected.safetensors"),
        ("model.safetensors", _truncate, BadCheckpoint, "truncated"),
        ("lm_config.json", lambda path: path.write_text('{"hidden_size": 4096}'), BadCheckpoint, "'dim'"),
    ],
)
def test_cases_that_cannot_be_read_are_named(
    case: Path, name: str, damage: Callable[[Path], object], error: type[Exception], says: str
) -> None:
    damage(case / name)
    with pytest.raises(error, match=says) as caught:
        verify(case)
    assert caught.value.exit_code == 2  # type: ignore[attr-defined]


@pytest.mark.parametrize("stored", ["float32", "bfloat16"])
def test_bf16_equals_the_package_generator_alone(case: Path, stored: str) -> None:
    """A case recorded here: the package's generator in batch 1, text and oracle embedding summed first."""
    import torch
    from moshi.models.lm import LMGen
    from moshi.models.loaders import get_moshi_lm
    from safetensors.torch import load_file, save_file

    state = load_file(case / "model.safetensors")
    if stored == "bfloat16":
        state = {name: tensor.to(torch.bfloat16) for name, tensor in state.items()}
        save_file(state, case / "model.safetensors")
    codes = load_file(case / "input.safetensors")["user_codes"]
    config = json.loads((case / "lm_config.json").read_text())
    recorded = json.loads((case / "case.json").read_text())
    # Several at one frame, a second reset with tokens, an append whose indices have partly passed.
    events = [
        {"frame": 3, "action": "append", "tokens": [7, 8]},
        {"frame": 3, "action": "reset"},
        {"frame": 3, "action": "append", "tokens": [9, 10]},
        {"frame": 3, "action": "append", "tokens": [11]},
        {"frame": 20, "action": "append", "tokens": list(range(30, 60))},
    ]
    stream = [200, 9, 10, 11, *range(30, 60)]
    oracle = [3, 3, 3] + [
        stream[i] if i < 4 or (i >= 17 and i < 34) else 3 for i in range(codes.shape[-1] - 3)
    ]
    (case / "case.json").write_text(json.dumps(recorded | {"dtype": "bfloat16", "events": events}))
    oracle_emb = state.pop("oracle_emb.weight").to(torch.bfloat16)
    expected = {"oracle_tokens": torch.tensor(oracle)}
    for suffix, told in (("", oracle), ("_no_oracle", [3] * len(oracle))):
        model = get_moshi_lm(None, config, device="cpu", dtype=torch.bfloat16)
        model.load_state_dict(state)
        model.eval()
        text_emb, now = model.text_emb.forward, [3]
        model.text_emb.forward = lambda x, f=text_emb, n=now: f(x) + oracle_emb[n[0]]  # type: ignore[method-assign]
        logits: list[torch.Tensor] = []
        generator = LMGen(
            model, use_sampling=False, on_text_logits_hook=lambda x, to=logits: to.append(x.float())
        )
        tokens = []
        with generator.streaming(1):
            for t, token in enumerate(told):
                now[0] = token
                out = generator.step(codes[:, :, t : t + 1])
                tokens.append(torch.full((1, 9, 1), -3) if out is None else out)
        expected["tokens" + suffix] = torch.cat(tokens, -1)
        expected["text_logits" + suffix] = torch.cat(logits, 2)
    save_file(expected, case / "expected.safetensors")
    verdict = verify(case)
    assert verdict.exact, verdict.line()
    assert verdict.logit_difference == verdict.logit_difference_no_oracle == 0
    assert not torch.equal(expected["tokens"], expected["tokens_no_oracle"])

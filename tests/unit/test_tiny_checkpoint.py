"""`kamebench tiny-checkpoint`: what it writes is a checkpoint, from a folder wherever it lies."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from kamebench.cli.tiny_checkpoint import command
from kamebench.errors import BadConfig
from kamebench.runtime.checkpoint import Oracle
from kamebench.runtime.voice import Voice, VoiceSettings, load

# torch 2.13 deprecates a decorator that it uses itself.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning"),
    pytest.mark.usefixtures("threads_ended"),
]


@pytest.fixture(autouse=True)
def moshi() -> None:
    pytest.importorskip("moshi.models.lm")


def write(folder: Path, *options: str) -> str:
    done = CliRunner().invoke(command, [str(folder), *options], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


def open_voice(folder: Path, oracle: Oracle) -> Voice:
    voice = load(VoiceSettings(str(folder), dtype="fp32", device="cpu"), 1, oracle)
    voice.engine.close()
    return voice


def test_both_kinds_load_and_differ_by_the_oracle_alone(tmp_path: Path) -> None:
    from safetensors.torch import load_file

    kame, plain = tmp_path / "with a space" / "kame", tmp_path / "moshi"
    assert "--system kame --backend local" in write(kame)
    assert "--system moshi --set" in write(plain, "--no-oracle")
    voice = open_voice(kame, "from-text")
    assert voice.facts["oracle_from_text_embedding"] is False
    text = "seven wise owls"
    pieces = [voice.tokenizer.id_to_piece(token) for token in voice.tokenizer.encode(text)]
    assert "".join(pieces).replace("▁", " ").strip() == text
    assert open_voice(plain, "from-text").facts["oracle_from_text_embedding"] is True
    open_voice(plain, "none")
    told, untold = (load_file(folder / "model.safetensors") for folder in (kame, plain))
    oracle = told.pop("oracle_emb.weight")
    assert oracle.shape == told["text_emb.weight"].shape
    assert told.keys() == untold.keys()
    assert all(bool((told[name] == untold[name]).all()) for name in told)


def test_the_seed_alone_decides_the_weights(tmp_path: Path) -> None:
    for name, seed in (("a", "7"), ("b", "7"), ("c", "8")):
        write(tmp_path / name, "--seed", seed, "--relocatable")
    a, b, c = ({path.name: path.read_bytes() for path in (tmp_path / name).iterdir()} for name in "abc")
    assert a == b
    assert a["config.json"] == c["config.json"]
    assert a["model.safetensors"] != c["model.safetensors"]
    assert a["mimi.safetensors"] != c["mimi.safetensors"]


def test_a_relocatable_one_may_move(tmp_path: Path) -> None:
    write(tmp_path / "old", "--relocatable")
    shutil.move(tmp_path / "old", tmp_path / "new")
    open_voice(tmp_path / "new", "from-text")


def test_what_is_there_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"mine": True}))
    with pytest.raises(BadConfig, match="is not empty"):
        write(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text()) == {"mine": True}
    (tmp_path / "file").write_text("")
    with pytest.raises(BadConfig, match="cannot be written"):
        write(tmp_path / "file" / "below")

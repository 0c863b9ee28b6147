"""The recognisers: names, options, loading, decoding, faults."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import soundfile as sf

from kamebench import assets
from kamebench.asr import RECOGNISERS, open_recogniser
from kamebench.asr.normalise import word_error_rate
from kamebench.audio import Pcm
from kamebench.errors import BadCheckpoint, BadConfig, UnknownName
from kamebench.systems.scripted import ScriptedOptions

# Inside openai-whisper: a vocabulary file left open, a tensor sorted by numpy.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:__array_wrap__:DeprecationWarning"),
]

SCRIPTED_TEXT = ScriptedOptions().text


@pytest.fixture(scope="module")
def voice() -> Pcm:
    with (files("kamebench") / "systems" / "scripted.flac").open("rb") as file:
        pcm, _ = sf.read(file, dtype="float32")
    return pcm


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random model in Whisper's own file format, with its English vocabulary."""
    torch = pytest.importorskip("torch")
    whisper = pytest.importorskip("whisper")
    dims = whisper.model.ModelDimensions(
        n_mels=80,
        n_audio_ctx=1500,
        n_audio_state=32,
        n_audio_head=2,
        n_audio_layer=1,
        n_vocab=51864,
        n_text_ctx=448,
        n_text_state=32,
        n_text_head=2,
        n_text_layer=1,
    )
    torch.manual_seed(0)
    model = whisper.model.Whisper(dims)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    path = tmp_path_factory.mktemp("whisper") / "random.pt"
    torch.save({"dims": vars(dims), "model_state_dict": model.state_dict()}, path)
    return path


def test_names_are_known_and_others_refused() -> None:
    assert {"faster-whisper", "whisper"} <= set(RECOGNISERS.names())
    with pytest.raises(UnknownName, match="Did you mean 'whisper'"):
        open_recogniser("wisper")
    with pytest.raises(BadConfig, match="beam_size"):
        open_recogniser("faster-whisper", beam_size=0)
    with pytest.raises(BadConfig, match="temperature"):
        open_recogniser("faster-whisper", temperature=1.0)


def test_a_recogniser_says_what_decides_its_text() -> None:
    recogniser = open_recogniser("faster-whisper:tiny.en", beam_size=5)
    assert recogniser.name == "faster-whisper:tiny.en"
    assert recogniser.settings["beam_size"] == 5
    assert recogniser.settings["temperature"] == 0


def test_a_checkpoint_in_whispers_format_is_loaded_and_decoded(checkpoint: Path, voice: Pcm) -> None:
    recogniser = open_recogniser(f"whisper:{checkpoint}", device="cpu")
    recogniser.start()
    assert recogniser.name == "whisper:random.pt"
    first, again = recogniser.transcribe(voice), recogniser.transcribe(voice)
    assert first == again  # of a random model: any text, but always the same
    assert isinstance(first.text, str)
    recogniser.close()
    assert open_recogniser(f"whisper:{checkpoint}", device="cpu").transcribe(voice) == first


def test_decoding_is_whispers_own(checkpoint: Path, voice: Pcm) -> None:
    whisper = pytest.importorskip("whisper")
    from kamebench.audio import resample

    model = whisper.load_model(str(checkpoint), device="cpu")
    direct = model.transcribe(
        resample(voice, 24_000, 16_000),
        language="en",
        temperature=0.0,
        condition_on_previous_text=False,
        fp16=False,
    )
    ours = open_recogniser(f"whisper:{checkpoint}", device="cpu").transcribe(voice)
    assert ours.text == direct["text"].strip()


def test_a_beam_is_passed_on(checkpoint: Path, voice: Pcm) -> None:
    greedy = open_recogniser(f"whisper:{checkpoint}", device="cpu", beam_size=1).transcribe(voice)
    beam = open_recogniser(f"whisper:{checkpoint}", device="cpu", beam_size=3).transcribe(voice)
    assert greedy.text != beam.text


@pytest.mark.parametrize(
    ("gpu", "device", "size"), [(True, "auto", "turbo"), (False, "auto", "base.en"), (True, "cpu", "base.en")]
)
def test_the_default_size_follows_the_machine(
    gpu: bool, device: str, size: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("whisper")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    assert open_recogniser("whisper", device=device).name == f"whisper:{size}"


def test_a_file_that_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    path = tmp_path / "odd.pt"
    torch.save({"weights": torch.zeros(1)}, path)
    with pytest.raises(BadCheckpoint, match="model_state_dict"):
        open_recogniser(f"whisper:{path}", device="cpu").start()
    path.write_bytes(b"not a checkpoint")
    with pytest.raises(BadCheckpoint, match="not a Whisper checkpoint"):
        open_recogniser(f"whisper:{path}", device="cpu").start()
    with pytest.raises(UnknownName, match=r"tiny\.en"):
        open_recogniser("whisper:tiny.eng").start()


def test_a_folder_that_holds_no_weights_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("faster_whisper")
    with pytest.raises(BadCheckpoint, match="CTranslate2"):
        open_recogniser(f"faster-whisper:{tmp_path}").start()


def test_a_name_that_is_neither_folder_nor_size_is_refused() -> None:
    pytest.importorskip("faster_whisper")
    with pytest.raises(BadConfig, match="Embedded sizes"):
        open_recogniser("faster-whisper:tinny").start()


@pytest.mark.assets
@pytest.mark.slow
def test_embedded_weights_understand_speech(voice: Pcm) -> None:
    pytest.importorskip("faster_whisper")
    if not assets.is_fetched("whisper-tiny.en") and not os.environ.get("KAMEBENCH_TEST_ASSETS"):
        pytest.skip("whisper-tiny.en is not fetched: kamebench fetch whisper-tiny.en")
    recogniser = open_recogniser("faster-whisper:tiny.en")
    plain, timed = recogniser.transcribe(voice), recogniser.transcribe_words(voice)
    assert plain.text == timed.text == recogniser.transcribe(voice).text
    assert not plain.words
    assert word_error_rate(SCRIPTED_TEXT, plain.text) <= 0.3
    times = [(word.start_s, word.end_s) for word in timed.words]
    assert times == sorted(times) and times[-1][1] <= len(voice) / 24_000 + 0.5
    assert np.isfinite(times).all()

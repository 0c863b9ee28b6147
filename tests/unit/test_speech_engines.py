"""The engines themselves: names, real speech, faults."""

from __future__ import annotations

import importlib.util
import os
import threading
from importlib.metadata import EntryPoint
from pathlib import Path

import numpy as np
import pytest

from kamebench import assets
from kamebench.audio import SAMPLE_RATE, Pcm, speech_bounds
from kamebench.errors import EngineFault, MissingExtra, UnknownName
from kamebench.speech import ENGINES, open_engine
from kamebench.speech.base import SpeechEngine

TEXT = "The answer is twelve. It is not prime."


def needs(module: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(importlib.util.find_spec(module) is None, reason=f"{module} is not installed")


def spoken(engine: SpeechEngine, text: str = TEXT) -> Pcm:
    return np.concatenate(list(engine.stream(text)))


@needs("espeakng_loader")
def test_espeak_says_the_same_thing_every_time() -> None:
    engine = open_engine("espeak")
    pcm = spoken(engine)
    assert pcm.dtype == np.float32
    assert 1.5 < len(pcm) / SAMPLE_RATE < 6.0
    assert float(np.abs(pcm).max()) <= 1.0
    start, end = speech_bounds(pcm)
    assert 0 <= start < end <= len(pcm)
    assert len(spoken(engine)) == pytest.approx(len(pcm), abs=SAMPLE_RATE / 100)
    assert len(spoken(engine, TEXT + " " + TEXT)) > 1.6 * len(pcm)


@needs("espeakng_loader")
def test_espeak_voices_do_not_disturb_one_another() -> None:
    """The C library holds one voice a process; each engine must still speak with its own, in any thread."""
    low, high = open_engine("espeak:en-us"), open_engine("espeak:en-gb+f3")
    alone = {engine.voice: spoken(engine) for engine in (low, high)}
    assert abs(len(alone["en-us"]) - len(alone["en-gb+f3"])) > 0.02 * SAMPLE_RATE
    found: list[tuple[str, Pcm]] = []

    def speak(engine: SpeechEngine) -> None:
        found.extend((engine.voice, spoken(engine)) for _ in range(4))

    threads = [threading.Thread(target=speak, args=(engine,)) for engine in (low, high)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    for voice, pcm in found:
        assert len(pcm) == pytest.approx(len(alone[voice]), abs=SAMPLE_RATE / 100)


@needs("espeakng_loader")
def test_an_unknown_voice_is_refused() -> None:
    with pytest.raises(UnknownName, match="espeak voice"):
        open_engine("espeak:klingon-x")
    with pytest.raises(UnknownName, match="Did you mean 'en-us'"):
        open_engine("espeak:en-uss")


@needs("piper")
def test_unknown_engine_and_voice_are_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'piper'"):
        open_engine("pipr")
    with pytest.raises(UnknownName, match="Did you mean 'joe'"):
        open_engine("piper:jo")


@needs("piper")
def test_weights_that_are_none_are_the_synthesisers_fault(tmp_path: Path) -> None:
    voice = tmp_path / "broken.onnx"
    voice.write_bytes(b"not a model")
    engine = open_engine(f"piper:{voice}")
    assert engine.voice == "broken"
    with pytest.raises(EngineFault, match="cannot be loaded") as caught:
        engine.start()
    assert caught.value.party == "synthesiser"


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from kamebench import speech

    def missing(voice: str) -> SpeechEngine:
        raise ModuleNotFoundError("No module named 'espeakng_loader'", name="espeakng_loader")

    monkeypatch.setattr(speech.ENGINES, "load", lambda name: missing)
    with pytest.raises(MissingExtra, match=r"kamebench\[local\]"):
        open_engine("espeak")


def test_engines_join_by_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    from kamebench import registry

    point = EntryPoint("mine", "kamebench.speech.espeak:EspeakEngine", "kamebench.speech_engines")
    monkeypatch.setattr(registry, "entry_points", lambda group: [point])
    assert "mine" in ENGINES.names()


@pytest.mark.assets
@needs("piper")
def test_piper_speaks_a_chunk_a_sentence_and_the_same_every_time() -> None:
    if not assets.is_fetched("piper-joe") and not os.environ.get("KAMEBENCH_TEST_ASSETS"):
        pytest.skip(
            "piper-joe is not fetched: run 'kamebench fetch piper-joe' or set KAMEBENCH_TEST_ASSETS=1"
        )
    engine = open_engine("piper")
    engine.start()
    chunks = list(engine.stream(TEXT))
    assert len(chunks) == 2
    assert all(chunk.dtype == np.float32 and 0.5 < len(chunk) / SAMPLE_RATE < 4 for chunk in chunks)
    again = list(open_engine("piper:joe").stream(TEXT))
    for one, two in zip(chunks, again, strict=True):
        np.testing.assert_array_equal(one, two)
    engine.close()

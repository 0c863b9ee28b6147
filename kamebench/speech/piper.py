"""Piper voices (package piper-tts, GPL-3.0-or-later, hence an optional extra): one chunk a sentence."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from kamebench import assets
from kamebench.audio import Pcm, resample
from kamebench.errors import EngineFault, UnknownName
from kamebench.speech.base import SpeechEngine

VOICES = {"joe": ("piper-joe", "en_US-joe-medium.onnx")}


class PiperEngine(SpeechEngine):
    """`voice`: a name in VOICES, or the path of an .onnx file with its .json beside it."""

    name = "piper"

    def __init__(self, voice: str = "") -> None:
        self.voice = voice or "joe"
        self.version = version("piper-tts")
        self._loaded: Any = None
        if self.voice not in VOICES and not Path(self.voice).is_file():
            raise UnknownName("piper voice", self.voice, VOICES)

    def start(self) -> None:
        if self._loaded is not None:
            return
        from piper import PiperVoice

        if self.voice in VOICES:
            asset, file = VOICES[self.voice]
            path = assets.fetch(asset) / file
        else:
            path = Path(self.voice)
        try:
            self._loaded = PiperVoice.load(path)
        except Exception as error:
            raise EngineFault(
                f"piper voice {path} cannot be loaded ({error}). Fetch it again.",
                kind="load",
                party="synthesiser",
            ) from None

    def stream(self, text: str) -> Iterator[Pcm]:
        from piper import SynthesisConfig

        self.start()
        # Without noise the same text gives the same samples, so a cached turn can be made again.
        how = SynthesisConfig(noise_scale=0.0, noise_w_scale=0.0)
        try:
            for chunk in self._loaded.synthesize(text, how):
                pcm = np.asarray(chunk.audio_float_array, np.float32)
                yield np.clip(resample(pcm, chunk.sample_rate), -1.0, 1.0)
        except Exception as error:
            raise EngineFault(
                f"piper: {type(error).__name__}: {error}", kind="crash", party="synthesiser"
            ) from None

    def close(self) -> None:
        self._loaded = None


def create(voice: str) -> SpeechEngine:
    return PiperEngine(voice)

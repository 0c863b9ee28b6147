"""Piper voices (package piper-tts, GPL-3.0-or-later, hence an optional extra): one chunk a sentence."""

from __future__ import annotations

import hashlib
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
# Without noise the same text gives the same samples, so a cached turn can be made again.
_NOISE = 0.0


class PiperEngine(SpeechEngine):
    """`voice`: a name in VOICES, or the path of an .onnx file with its .json beside it."""

    name = "piper"

    def __init__(self, voice: str = "") -> None:
        self.version = version("piper-tts")
        self._loaded: Any = None
        self._path: Path | None = None
        if not voice or voice in VOICES:
            self.voice = voice or "joe"
            asset, file = VOICES[self.voice]
            weights = assets.sha256s(asset)[f"{asset}/{file}"]
        elif Path(voice).is_file():
            self.voice, self._path = Path(voice).stem, Path(voice)
            weights = hashlib.sha256(self._path.read_bytes()).hexdigest()
        else:
            raise UnknownName("piper voice", voice, VOICES)
        self.settings = {"noise_scale": _NOISE, "noise_w_scale": _NOISE, "weights_sha256": weights}

    def start(self) -> None:
        if self._loaded is not None:
            return
        from piper import PiperVoice

        if self._path is not None:
            path = self._path
        else:
            asset, file = VOICES[self.voice]
            path = assets.fetch(asset) / file
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
        how = SynthesisConfig(noise_scale=_NOISE, noise_w_scale=_NOISE)
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

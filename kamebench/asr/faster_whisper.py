"""Whisper by CTranslate2 (faster-whisper), in 8-bit integers: quick enough for two CPU cores."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kamebench import assets
from kamebench.asr import DecodingOptions
from kamebench.asr.base import Recognised, Recogniser, Word
from kamebench.audio import SAMPLE_RATE, Pcm, resample
from kamebench.errors import AssetFault, BadCheckpoint, BadConfig, EngineFault

if TYPE_CHECKING:
    from faster_whisper import WhisperModel

RATE = 16_000
ASSETS = {"tiny.en": "whisper-tiny.en", "base": "whisper-base"}


class FasterWhisper(Recogniser):
    """Whisper weights in CTranslate2's format.

    Args:
        model: `tiny.en` or `base` (fetched as assets), a CTranslate2 folder, or another size or repository
            of the Hugging Face hub.
    """

    def __init__(self, model: str, decoding: DecodingOptions) -> None:
        self.name = f"faster-whisper:{model}"
        self.settings: Mapping[str, Any] = decoding.model_dump() | {
            "compute_type": "int8",
            "temperature": 0.0,
        }
        self._source, self._decoding = model, decoding
        self._model: WhisperModel | None = None

    def start(self) -> None:
        self._loaded()

    def transcribe(self, pcm: Pcm) -> Recognised:
        return self._transcribe(pcm, words=False)

    def transcribe_words(self, pcm: Pcm) -> Recognised:
        return self._transcribe(pcm, words=True)

    def close(self) -> None:
        self._model = None

    def _transcribe(self, pcm: Pcm, words: bool) -> Recognised:
        model = self._loaded()
        try:
            segments, _ = model.transcribe(
                resample(pcm, SAMPLE_RATE, RATE),
                language=self._decoding.language,
                beam_size=self._decoding.beam_size,
                temperature=0.0,  # no fallback: it samples, and may take ten times as long
                condition_on_previous_text=False,
                word_timestamps=words,
            )
            found = list(segments)
        except RuntimeError as error:
            raise EngineFault(f"{self.name}: {error}", kind="crash") from error
        timed = [word for segment in found for word in segment.words or ()]
        return Recognised(
            " ".join(segment.text.strip() for segment in found),
            tuple(Word(word.word.strip(), float(word.start), float(word.end)) for word in timed),
        )

    def _loaded(self) -> WhisperModel:
        if self._model is None:
            from faster_whisper import WhisperModel

            threads = min(4, os.cpu_count() or 1)
            folder = self._folder()
            try:
                self._model = WhisperModel(
                    folder, device=self._decoding.device, compute_type="int8", cpu_threads=threads
                )
            except (RuntimeError, ValueError) as error:
                raise BadCheckpoint(
                    f"{self.name}: {folder} does not load as CTranslate2 Whisper weights ({error}). "
                    "Convert them with ct2-transformers-converter."
                ) from error
        return self._model

    def _folder(self) -> str:
        """Where the weights lie on disk; fetched when they are not there."""
        if self._source in ASSETS:
            return str(assets.fetch(ASSETS[self._source]))
        if Path(self._source).is_dir():
            return self._source
        from faster_whisper import download_model

        try:
            return download_model(self._source)
        except ValueError as error:
            raise BadConfig(
                f"recogniser '{self.name}': neither a folder nor a Whisper size nor a repository of the hub "
                f"({error}). Embedded sizes: {', '.join(ASSETS)}."
            ) from None
        except OSError as error:  # every network error of the hub's client is one
            raise AssetFault(f"recogniser '{self.name}': cannot be fetched from the hub ({error})") from error


def create(argument: str, decoding: DecodingOptions) -> Recogniser:
    """`argument`: see `FasterWhisper`; default tiny.en."""
    return FasterWhisper(argument or "tiny.en", decoding)

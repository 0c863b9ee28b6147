"""Whisper as OpenAI published it (PyTorch)."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any

from kamebench.asr import DecodingOptions
from kamebench.asr.base import Recognised, Recogniser, Word
from kamebench.audio import SAMPLE_RATE, Pcm, resample
from kamebench.errors import AssetFault, BadCheckpoint, EngineFault, MissingExtra, UnknownName

if TYPE_CHECKING:
    from whisper.model import Whisper

RATE = 16_000


class OpenaiWhisper(Recogniser):
    """Weights in Whisper's own format.

    Args:
        model: one of its sizes (downloaded by the library, which checks their hashes), or a checkpoint file.
    """

    def __init__(self, model: str, decoding: DecodingOptions) -> None:
        self.name = f"whisper:{Path(model).name}"
        self.settings: Mapping[str, Any] = decoding.model_dump() | {"temperature": 0.0}
        self._source, self._decoding = model, decoding
        self._model: Whisper | None = None

    def start(self) -> None:
        self._loaded()

    def transcribe(self, pcm: Pcm) -> Recognised:
        return self._transcribe(pcm, words=False)

    def transcribe_words(self, pcm: Pcm) -> Recognised:
        return self._transcribe(pcm, words=True)

    def close(self) -> None:
        self._model = None

    def _transcribe(self, pcm: Pcm, words: bool) -> Recognised:
        model, beam = self._loaded(), self._decoding.beam_size
        try:
            found: dict[str, Any] = model.transcribe(
                resample(pcm, SAMPLE_RATE, RATE),
                language=self._decoding.language,
                beam_size=beam if beam > 1 else None,
                temperature=0.0,
                condition_on_previous_text=False,
                word_timestamps=words,
                fp16=model.device.type == "cuda",
            )
        except RuntimeError as error:
            raise EngineFault(f"{self.name}: {error}", kind="crash") from error
        timed = [word for segment in found["segments"] for word in segment.get("words", ())]
        return Recognised(
            found["text"].strip(),
            tuple(Word(word["word"].strip(), float(word["start"]), float(word["end"])) for word in timed),
        )

    def _loaded(self) -> Whisper:
        if self._model is None:
            import torch
            import whisper

            device = self._decoding.device
            if device == "auto":
                device = "cuda" if torch.cuda.is_available() else "cpu"
            if not Path(self._source).is_file() and self._source not in whisper.available_models():
                raise UnknownName("Whisper size or checkpoint file", self._source, whisper.available_models())
            try:
                self._model = whisper.load_model(self._source, device=device)
            except (KeyError, TypeError, ValueError, RuntimeError, EOFError, UnpicklingError) as error:
                raise BadCheckpoint(
                    f"{self.name}: {self._source} is not a Whisper checkpoint "
                    f"({type(error).__name__}: {str(error).partition(chr(10))[0]}). "
                    "It must hold 'dims' and 'model_state_dict'."
                ) from error
            except OSError as error:  # urllib's errors are OSErrors
                raise AssetFault(f"{self.name}: the weights cannot be fetched ({error})") from error
        return self._model


def create(argument: str, decoding: DecodingOptions) -> Recogniser:
    """`argument`: a size or a checkpoint file; default `turbo` where there is a GPU, else `base.en`."""
    if find_spec("whisper") is None:
        raise MissingExtra("recogniser 'whisper'", "whisper")
    if not argument:
        import torch

        gpu = decoding.device != "cpu" and torch.cuda.is_available()
        argument = "turbo" if gpu else "base.en"
    return OpenaiWhisper(argument, decoding)

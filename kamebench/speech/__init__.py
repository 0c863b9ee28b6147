"""Text to speech: engines by name, text made speakable, and a cache of spoken turns.

An engine's name is `kind` or `kind:voice`: `piper:joe`, `piper:/path/to/voice.onnx`, `espeak:en-us`.
"""

from __future__ import annotations

from kamebench.errors import MissingExtra
from kamebench.registry import Entry, Registry
from kamebench.speech.base import SpeechEngine
from kamebench.speech.cache import synthesise
from kamebench.speech.normalise import normalise
from kamebench.speech.notation import number_words

ENGINES = Registry(
    "speech engine",
    "kamebench.speech_engines",
    {
        "piper": Entry("kamebench.speech.piper:create", "local", "piper:VOICE"),
        "espeak": Entry("kamebench.speech.espeak:create", "local", "espeak:VOICE"),
    },
)


def open_engine(name: str) -> SpeechEngine:
    """The engine of a name; its voice is loaded by `start` or the first use.

    Raises:
        UnknownName: no such engine or voice. MissingExtra: a package it needs is not installed.
    """
    kind, _, voice = name.partition(":")
    number_words()
    try:
        engine: SpeechEngine = ENGINES.load(kind)(voice)
    except ModuleNotFoundError as error:  # found missing only when the engine is made
        raise MissingExtra(f"speech engine '{kind}'", "local") from error
    return engine


__all__ = ["ENGINES", "normalise", "open_engine", "synthesise"]

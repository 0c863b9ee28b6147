"""espeak-ng through its C library, which the wheel espeakng-loader brings along."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from kamebench.audio import Pcm, resample
from kamebench.errors import EngineFault, UnknownName
from kamebench.speech.base import SpeechEngine

# Constants of espeak-ng's speak_lib.h.
_AUDIO_OUTPUT_SYNCHRONOUS = 2
_CHARS_UTF8 = 1
_PHRASE_MS = 200

_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_short), ctypes.c_int, ctypes.c_void_p)

# The library keeps one voice and one callback for the whole process.
_lock = threading.Lock()
_library: Any = None
_rate = 0


class EspeakEngine(SpeechEngine):
    """`voice`: a language such as "en-us", with a variant after a plus: "en-gb+f3". Fast, hard to recognise.

    The library carries state from one call to the next: saying a text again gives the same speech, up to
    some samples longer or shorter.
    """

    name = "espeak"

    def __init__(self, voice: str = "") -> None:
        self.voice = voice or "en-us"
        with _lock:
            self.version = _load()
            language, plus, variant = self.voice.partition("+")
            voices = _voices()
            self._file = f"{voices.get(language, '')}{plus}{variant}".encode()
            if language not in voices or _library.espeak_SetVoiceByName(self._file) != 0:
                raise UnknownName("espeak voice", self.voice, voices)

    def stream(self, text: str) -> Iterator[Pcm]:
        blocks: list[np.ndarray[Any, np.dtype[np.int16]]] = []

        def collect(wav: Any, count: int, events: Any) -> int:
            if wav and count > 0:
                blocks.append(np.ctypeslib.as_array(wav, (count,)).copy())
            return 0

        callback, data = _CALLBACK(collect), text.encode()
        with _lock:
            _library.espeak_SetVoiceByName(self._file)
            _library.espeak_SetSynthCallback(callback)
            status = _library.espeak_Synth(data, len(data) + 1, 0, 1, 0, _CHARS_UTF8, None, None)
            _library.espeak_Synchronize()
        if status != 0 or not blocks:
            raise EngineFault(
                f"espeak-ng spoke nothing (status {status}) for {text[:60]!r}",
                kind="crash",
                party="synthesiser",
            )
        yield resample((np.concatenate(blocks) / 32_768).astype(np.float32), _rate)


class _Voice(ctypes.Structure):
    """The first fields of espeak_VOICE in espeak-ng's speak_lib.h."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("languages", ctypes.c_char_p),  # a byte of priority before the first language
        ("identifier", ctypes.c_char_p),
    )


def _voices() -> dict[str, str]:
    """Language -> the voice file that speaks it."""
    _library.espeak_ListVoices.restype = ctypes.POINTER(ctypes.POINTER(_Voice))
    listed, found = _library.espeak_ListVoices(None), dict[str, str]()
    at = 0
    while listed[at]:
        voice = listed[at].contents
        found[voice.languages[1:].decode()] = voice.identifier.decode()
        at += 1
    return found


def _load() -> str:
    """Load the library once; returns its version."""
    global _library, _rate  # noqa: PLW0603 the library itself is one a process
    import espeakng_loader

    if _library is None:
        library = ctypes.CDLL(espeakng_loader.get_library_path())
        library.espeak_Info.restype = ctypes.c_char_p
        data = str(espeakng_loader.get_data_path()).encode()
        _rate = library.espeak_Initialize(_AUDIO_OUTPUT_SYNCHRONOUS, _PHRASE_MS, data, 0)
        if _rate <= 0:
            raise EngineFault("espeak-ng cannot find its data", kind="load", party="synthesiser")
        _library = library
    return str(_library.espeak_Info(None).decode())


def create(voice: str) -> SpeechEngine:
    return EspeakEngine(voice)

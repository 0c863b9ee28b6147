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
    """`voice`: an espeak-ng voice such as "en-us", "en-gb" or "en-us+f3". Fast, and hard to recognise."""

    name = "espeak"

    def __init__(self, voice: str = "") -> None:
        self.voice = voice or "en-us"
        with _lock:
            self.version = _load()
            if _library.espeak_SetVoiceByName(self.voice.encode()) != 0:
                raise UnknownName(
                    "espeak voice", self.voice, ("en-us", "en-gb", "en-gb-scotland", "en-us+f3")
                )

    def stream(self, text: str) -> Iterator[Pcm]:
        blocks: list[np.ndarray[Any, np.dtype[np.int16]]] = []

        def collect(wav: Any, count: int, events: Any) -> int:
            if wav and count > 0:
                blocks.append(np.ctypeslib.as_array(wav, (count,)).copy())
            return 0

        callback, data = _CALLBACK(collect), text.encode()
        with _lock:
            _library.espeak_SetVoiceByName(self.voice.encode())
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

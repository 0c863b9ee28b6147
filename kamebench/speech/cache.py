"""Spoken turns, content-addressed: the same text by the same voice is spoken once.

An entry is a FLAC file and the `SpokenTurn` beside it, written last. An entry whose audio does not have the
hash that its record states is made again.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
from filelock import FileLock

from kamebench import assets
from kamebench.audio import Pcm, pcm_sha256, read_mono, speech_bounds, write_mono
from kamebench.errors import BadAudio, BadRun, EngineFault, UserError
from kamebench.records import SpokenTurn
from kamebench.speech.base import SpeechEngine
from kamebench.speech.normalise import normalise
from kamebench.store import read_record, write_record

PEAK = 0.5  # user turns are played at -6 dBFS


def synthesise(text: str, engine: SpeechEngine, *, folder: Path | None = None) -> tuple[SpokenTurn, Pcm]:
    """Speak `text`: what is known about the turn, and float32 [n] at 24 000 Hz.

    Args:
        folder: the cache; default `speech/` in kamebench's cache folder.

    Raises:
        UserError: nothing in the text can be said. EngineFault: the engine failed.
    """
    spoken = normalise(text)
    if not spoken:
        raise UserError(f"{text!r}: nothing in it can be said. Give a turn with words.")
    made_by = [engine.name, engine.version, engine.voice, dict(engine.settings)]
    key_text = json.dumps([text, spoken, made_by, PEAK], sort_keys=True)
    key = hashlib.sha256(key_text.encode()).hexdigest()
    place = (folder or assets.cache_folder() / "speech") / key[:2]
    place.mkdir(parents=True, exist_ok=True)
    audio, record = place / f"{key}.flac", place / f"{key}.json"
    with FileLock(place / f"{key}.lock"):
        found = _read(audio, record)
        return found if found is not None else _make(text, spoken, engine, audio, record)


def _read(audio: Path, record: Path) -> tuple[SpokenTurn, Pcm] | None:
    if not (audio.exists() and record.exists()):
        return None
    try:
        turn, pcm = read_record(record, SpokenTurn), read_mono(audio)
    except (BadRun, BadAudio):
        return None
    return (turn, pcm) if pcm_sha256(pcm) == turn.audio_sha256 else None


def _make(text: str, spoken: str, engine: SpeechEngine, audio: Path, record: Path) -> tuple[SpokenTurn, Pcm]:
    chunks = list(engine.stream(spoken))
    pcm = np.concatenate(chunks) if chunks else np.zeros(0, np.float32)
    if not pcm.any() or not np.isfinite(pcm).all():
        raise EngineFault(
            f"{engine.name} ({engine.voice}) gave no usable sound for {spoken[:60]!r}. Choose another voice.",
            kind="silent",
            party="synthesiser",
        )
    pcm = (pcm * (PEAK / float(np.abs(pcm).max()))).astype(np.float32)
    write_mono(audio, pcm)
    pcm = read_mono(audio)  # what everybody else will read: the 16-bit samples
    start, end = speech_bounds(pcm)
    turn = SpokenTurn(
        text_written=text,
        text_spoken=spoken,
        audio_sha256=pcm_sha256(pcm),
        n_samples=len(pcm),
        speech_start_sample=start,
        speech_end_sample=end,
        engine=engine.name,
        engine_version=engine.version,
        voice=engine.voice,
    )
    write_record(record, turn)
    return turn, pcm

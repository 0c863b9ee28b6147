"""Spoken turns: ends of speech by sample, and a cache that can be trusted."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from kamebench.audio import SAMPLE_RATE, WINDOW_SAMPLES, Pcm, pcm_sha256, read_mono, speech_bounds
from kamebench.errors import BadAudio, EngineFault, UserError
from kamebench.speech import synthesise
from kamebench.speech.base import SpeechEngine
from kamebench.speech.speaking import speak_questions
from kamebench.tasks import load_task

LEAD, TONE, TAIL = 2_400, 24_000, 7_200


class ToneEngine(SpeechEngine):
    """Silence, a tone, silence; counts how often it was asked."""

    name, version, voice = "tone", "1", "low"

    def __init__(self, level: float = 0.2, **settings: float) -> None:
        self.settings = settings
        self.level, self.said = level, list[str]()

    def stream(self, text: str) -> Iterator[Pcm]:
        self.said.append(text)
        yield np.zeros(LEAD, np.float32)
        yield (self.level * np.sin(np.arange(TONE) * 2 * np.pi * 200 / SAMPLE_RATE)).astype(np.float32)
        yield np.zeros(TAIL, np.float32)


def test_a_turn_says_where_its_speech_is(tmp_path: Path) -> None:
    turn, pcm = synthesise("It costs $5.", ToneEngine(), folder=tmp_path)
    assert (turn.speech_start_sample, turn.speech_end_sample) == (LEAD, LEAD + TONE)
    assert (turn.text_written, turn.text_spoken) == ("It costs $5.", "It costs 5 dollars.")
    assert turn.n_samples == len(pcm) == LEAD + TONE + TAIL
    assert turn.audio_sha256 == pcm_sha256(pcm)
    assert float(np.abs(pcm).max()) == pytest.approx(0.5, abs=1e-3)


@pytest.mark.parametrize("gain", [0.02, 0.5])
def test_the_floor_is_40_db_below_the_loudest_window(gain: float) -> None:
    loud = np.full(10 * WINDOW_SAMPLES, gain, np.float32)
    for factor, counts in ((0.0101, True), (0.0099, False)):
        edge = np.full(WINDOW_SAMPLES, gain * factor, np.float32)
        start, end = speech_bounds(np.concatenate([edge, loud, edge]))
        assert (start, end) == ((0, 12 * WINDOW_SAMPLES) if counts else (240, 11 * WINDOW_SAMPLES))


def test_a_last_window_that_is_not_whole_ends_with_the_audio() -> None:
    assert speech_bounds(np.full(WINDOW_SAMPLES + 7, 0.1, np.float32)) == (0, WINDOW_SAMPLES + 7)
    with pytest.raises(BadAudio, match="silent"):
        speech_bounds(np.zeros(4_000, np.float32))


def test_the_same_turn_is_spoken_once(tmp_path: Path) -> None:
    engine = ToneEngine()
    first = synthesise("Hello.", engine, folder=tmp_path)
    again = synthesise("Hello.", engine, folder=tmp_path)
    assert engine.said == ["Hello."]
    assert first[0] == again[0]
    np.testing.assert_array_equal(first[1], again[1])


def test_another_text_voice_version_or_setting_is_another_entry(tmp_path: Path) -> None:
    engines = [ToneEngine() for _ in range(3)] + [ToneEngine(rate=1.1)]
    engines[1].voice, engines[2].version = "high", "2"
    for engine in engines:
        synthesise("Hello.", engine, folder=tmp_path)
        assert len(engine.said) == 1
    synthesise("Hello there.", engines[0], folder=tmp_path)
    assert len(list(tmp_path.rglob("*.flac"))) == 5


def _entry(folder: Path, ending: str) -> Path:
    return next(folder.rglob(f"*{ending}"))


@pytest.mark.parametrize(
    "damage", ["audio cut", "audio exchanged", "audio gone", "record cut", "record gone"]
)
def test_a_damaged_entry_is_made_again(tmp_path: Path, damage: str) -> None:
    engine = ToneEngine()
    whole = synthesise("Hello.", engine, folder=tmp_path)
    what, how = damage.split()
    path = _entry(tmp_path, ".flac" if what == "audio" else ".json")
    if how == "gone":
        path.unlink()
    elif how == "cut":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    else:
        other = tmp_path / "other"
        synthesise("Hello.", ToneEngine(level=0.1, offset=1.0), folder=other)
        loud = read_mono(_entry(other, ".flac"))
        from kamebench.audio import write_mono

        write_mono(path, loud * np.float32(0.5))
    mended = synthesise("Hello.", engine, folder=tmp_path)
    assert len(engine.said) == 2
    assert mended[0] == whole[0]
    np.testing.assert_array_equal(read_mono(_entry(tmp_path, ".flac")), whole[1])


def test_an_engine_that_dies_leaves_nothing_that_looks_whole(tmp_path: Path) -> None:
    class Dying(ToneEngine):
        def stream(self, text: str) -> Iterator[Pcm]:
            yield from list(super().stream(text))[:2]
            raise EngineFault("died", kind="crash", party="synthesiser")

    with pytest.raises(EngineFault):
        synthesise("Hello.", Dying(), folder=tmp_path)
    assert not list(tmp_path.rglob("*.flac")) and not list(tmp_path.rglob("*.json"))


@pytest.mark.parametrize("chunk", [None, np.zeros(100, np.float32), np.full(100, np.nan, np.float32)])
def test_an_engine_without_usable_sound_is_a_fault(tmp_path: Path, chunk: Pcm | None) -> None:
    class Mute(ToneEngine):
        def stream(self, text: str) -> Iterator[Pcm]:
            yield from [] if chunk is None else [chunk]

    with pytest.raises(EngineFault, match="no usable sound") as caught:
        synthesise("Hello.", Mute(), folder=tmp_path)
    assert caught.value.party == "synthesiser"


def test_a_text_that_cannot_be_said_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="can be said"):
        synthesise("...", ToneEngine(), folder=tmp_path)


SPEAK = """
    import json, sys, time
    from pathlib import Path
    sys.path.insert(0, sys.argv[2])
    from test_speech_cache import ToneEngine
    from kamebench.speech import synthesise

    class Slow(ToneEngine):
        def stream(self, text):
            time.sleep(0.3)
            yield from super().stream(text)

    engine = Slow()
    turn, _ = synthesise("Hello.", engine, folder=Path(sys.argv[1]))
    print(json.dumps([turn.audio_sha256, len(engine.said)]))
"""


def test_two_processes_speak_a_turn_once(tmp_path: Path) -> None:
    command = [sys.executable, "-c", textwrap.dedent(SPEAK), str(tmp_path), str(Path(__file__).parent)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answers = [json.loads(process.communicate(timeout=60)[0]) for process in running]
    assert answers[0][0] == answers[1][0]
    assert sorted(said for _, said in answers) == [0, 1]


def test_a_whole_task_is_spoken_in_order(tmp_path: Path) -> None:
    questions = load_task("spoken-basics").questions[:2]
    turns = list(speak_questions(questions, ToneEngine(), folder=tmp_path))
    assert [(turn.question_id, turn.turn) for turn in turns] == [("r1", 1), ("r1", 2), ("r2", 1), ("r2", 2)]
    assert [turn.spoken.text_written for turn in turns] == [t.text for q in questions for t in q.turns]

"""Transcripts: what is given to the recogniser, what is kept, what is flagged."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import soundfile as sf

from kamebench import store
from kamebench.asr.base import Recognised, Recogniser, Word
from kamebench.audio import Pcm, TwoTrackWriter, samples_to_ns, seconds
from kamebench.errors import BadRun, EngineFault
from kamebench.events import TextOut, TurnEnd, TurnStart, to_json
from kamebench.measure import measure_run
from kamebench.records import Segment
from kamebench.transcribe import PAD, outside_speech, transcribe_run
from tests.synthetic import Planted, make_run


class Dictated(Recogniser):
    """Says what it was told to, in turn, and keeps what it was given."""

    name = "dictated"

    def __init__(self, *answers: Recognised | EngineFault) -> None:
        self._answers = list(answers)
        self.heard: list[Pcm] = []

    def transcribe(self, pcm: Pcm) -> Recognised:
        self.heard.append(pcm)
        answer = self._answers.pop(0)
        if isinstance(answer, EngineFault):
            raise answer
        return answer


@pytest.fixture(scope="module")
def voice() -> Pcm:
    with (files("kamebench") / "systems" / "scripted.flac").open("rb") as file:
        pcm, _ = sf.read(file, dtype="float32")
    return pcm[: seconds(1.4)]


def measured(folder: Path, voice: Pcm, *latencies: float | None) -> store.Run:
    run = make_run(folder, {"a": [Planted(latency_ms=latency) for latency in latencies]})
    session = run.sessions["a"]
    user, system = np.zeros((2, session.n_samples), np.float32)
    events = []
    for mark, latency in zip(session.turns, latencies, strict=True):
        user[mark.user_start_sample : mark.user_end_sample] = 0.1
        start, end = samples_to_ns(mark.start_sample), samples_to_ns(mark.end_sample)
        events.append(TurnStart(start, 0, mark.turn))
        if latency is not None:
            system[mark.user_end_sample + seconds(latency / 1000) :][: len(voice)] = voice
            events += [TextOut(start + 1, 0, " The answer is"), TextOut(start + 2, 0, " forty two.")]
        events.append(TurnEnd(end, 0, mark.turn, "quiet"))
    with TwoTrackWriter(run.session_folder("a") / store.AUDIO) as writer:
        writer.write(user, system)
    lines = "".join(json.dumps(to_json(event)) + "\n" for event in events)
    store.write_text(run.session_folder("a") / store.EVENTS, lines)
    store.seal(run.path)
    measure_run(run)
    return store.open_run(run.path)


USER = Recognised("Question a, turn 1?")


def test_a_response_is_transcribed_from_its_start_to_its_end(tmp_path: Path, voice: Pcm) -> None:
    run = measured(tmp_path, voice, 400)
    recogniser = Dictated(USER, Recognised("The answer is 42.", (Word("The", 0.2, 0.4), Word("42", 1, 1.5))))
    (row,) = transcribe_run(run, recogniser).turns
    user, system = recogniser.heard
    assert len(user) == seconds(2.0) + 2 * PAD
    assert len(system) == pytest.approx(len(voice) + 2 * PAD, abs=seconds(0.1))
    assert row.text == "The answer is 42." and row.normalised == "the answer is 42"
    assert row.user_text == USER.text and row.user_wer == 0
    assert row.own_text == "The answer is forty two." and row.own_wer == 0
    assert row.flags == () and row.reason == ""
    assert row.words_per_minute == pytest.approx(4 / 1.4 * 60, rel=0.1)
    stored = store.open_run(run.path)
    stored.check()
    assert stored.transcripts is not None and stored.transcripts.turns == (row,)
    assert stored.transcripts.recogniser == "dictated" and "pad_s" in stored.transcripts.settings


def test_silence_is_not_given_to_the_recogniser(tmp_path: Path, voice: Pcm) -> None:
    recogniser = Dictated(USER)
    (row,) = transcribe_run(measured(tmp_path, voice, None), recogniser).turns
    assert len(recogniser.heard) == 1  # the user's audio alone
    assert row.text is None and row.normalised is None and row.reason.startswith("silent")
    assert row.own_text is None and row.own_wer is None and row.words_per_minute is None


def test_errors_of_either_side_are_counted_against_what_was_meant(tmp_path: Path, voice: Pcm) -> None:
    recogniser = Dictated(Recognised("Question b turn 1"), Recognised("The answer is forty."))
    (row,) = transcribe_run(measured(tmp_path, voice, 400), recogniser).turns
    assert row.user_wer == pytest.approx(1 / 4)
    assert row.own_wer == pytest.approx(1 / 4)


@pytest.mark.parametrize(
    "invented",
    [
        Recognised("Thank you. Bye.", (Word("Thank", 0.2, 0.4), Word("Bye.", 2.2, 2.4))),
        Recognised(" ".join(["you"] * 40)),
    ],
)
def test_text_outside_speech_is_flagged(tmp_path: Path, voice: Pcm, invented: Recognised) -> None:
    (row,) = transcribe_run(measured(tmp_path, voice, 400), Dictated(USER, invented)).turns
    assert row.flags == ("hallucination",) and row.text == invented.text


def test_a_word_is_outside_only_when_it_touches_no_speech() -> None:
    speech = [Segment(start=seconds(1), end=seconds(2)), Segment(start=seconds(4), end=seconds(5))]
    assert not outside_speech([Word("a", 1.2, 1.4), Word("b", 2.1, 2.3), Word("c", 3.8, 4.1)], speech)
    assert not outside_speech([Word("long", 0.0, 1.1)], speech)
    assert outside_speech([Word("a", 2.8, 3.2)], speech)
    assert outside_speech([Word("a", 0.1, 0.5)], speech)


def test_a_recogniser_that_fails_costs_one_text_and_no_score(tmp_path: Path, voice: Pcm) -> None:
    fault = EngineFault("out of memory", kind="crash")
    recogniser = Dictated(USER, fault, fault, Recognised("The answer is 42."))
    first, second = transcribe_run(measured(tmp_path, voice, 400, 600), recogniser).turns
    assert first.text is None and first.reason == "recogniser: crash: out of memory"
    assert first.user_wer == 0
    assert second.text == "The answer is 42." and second.user_text is None and second.user_wer is None


def test_a_run_that_was_not_measured_is_refused(tmp_path: Path, voice: Pcm) -> None:
    run = measured(tmp_path, voice, 400)
    (run.path / store.MEASURES).unlink()
    with pytest.raises(BadRun, match="kamebench measure"):
        transcribe_run(store.open_run(run.path), Dictated())

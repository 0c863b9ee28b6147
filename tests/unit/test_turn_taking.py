"""The cascade's ear and its sentence cutter."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kamebench.audio import FRAME_SAMPLES, Frame, Pcm
from kamebench.systems.ear import Ear
from kamebench.systems.sentences import SentenceCutter
from kamebench.vad.base import StreamingDetector


class Loud(StreamingDetector):
    name = "loud"

    def is_speech(self, pcm: Pcm) -> bool:
        return bool(pcm.max() > 0.5)


def listen(pattern: str, **options: int) -> list[tuple[int, str]]:
    """Frames by letter: x speech, . silence; returns (frame, what the ear said)."""
    ear = Ear(Loud(), **({"hangover_ms": 480} | options))
    said: list[tuple[int, str]] = []
    for index, letter in enumerate(pattern):
        heard = ear.hear(Frame(index, np.full(FRAME_SAMPLES, float(letter == "x"), np.float32)))
        if heard is not None:
            said.append((index, heard))
        if heard == "ended":
            said.append((len(ear.take()) // FRAME_SAMPLES, "frames"))
    return said


def test_an_utterance_ends_after_the_hangover_and_keeps_its_beginning() -> None:
    assert listen("....xxxx......") == [(5, "began"), (13, "ended"), (14, "frames")]


def test_a_pause_shorter_than_the_hangover_does_not_end_it() -> None:
    assert listen("xxx.....xxx......") == [(1, "began"), (16, "ended"), (17, "frames")]


def test_a_click_is_not_speech() -> None:
    assert listen("..x...x....x......") == []


def test_the_pre_roll_is_bounded() -> None:
    assert listen("." * 50 + "xx" + "." * 6)[-1] == (12, "frames")


def test_the_hangover_is_rounded_up_to_frames() -> None:
    assert listen("xx" + "." * 10, hangover_ms=81)[1] == (3, "ended")


def cut(pieces: list[str]) -> list[str]:
    cutter = SentenceCutter()
    done = [sentence for piece in pieces for sentence in cutter.feed(piece)]
    rest = cutter.rest()
    return [*done, rest] if rest else done


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("It is four. Yes!", ["It is four.", "Yes!"]),
        ("Pi is 3.14 or so. Good.", ["Pi is 3.14 or so.", "Good."]),
        ("Ask Dr. Smith. He knows.", ["Ask Dr. Smith.", "He knows."]),
        ("Fruit, e.g. pears. Nice.", ["Fruit, e.g. pears.", "Nice."]),
        ('He said "no." Then left.', ['He said "no."', "Then left."]),
        ("One\nTwo", ["One", "Two"]),
        ("", []),
        ("No end mark", ["No end mark"]),
    ],
)
def test_sentences(text: str, sentences: list[str]) -> None:
    assert cut([text]) == sentences


@given(st.text(alphabet="ab.!? \nDr3", max_size=60), st.integers(1, 7))
def test_how_the_text_arrives_does_not_change_words(text: str, size: int) -> None:
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    assert "".join(cut(pieces)).split() == [] or "".join("".join(cut(pieces)).split()) == "".join(
        text.split()
    )
    assert all(sentence.strip() == sentence and sentence for sentence in cut(pieces))

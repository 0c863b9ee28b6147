"""The definitions of docs/measuring.md on segments that are known."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kamebench.audio import FRAME_SAMPLES, samples_to_ns, seconds
from kamebench.events import Event, StageMark, TextOut
from kamebench.measure.onset import Span, find_onset, overlap_share
from kamebench.measure.turn import stages_of
from kamebench.records import Segment

SPAN = Span(seconds(2), seconds(5), seconds(20), seconds(25))


def speech(*ranges: tuple[float, float]) -> list[Segment]:
    return [Segment(start=seconds(start), end=seconds(end)) for start, end in ranges]


@pytest.mark.parametrize(
    ("ranges", "outcome", "latency_ms", "backchannels"),
    [
        ([], "silent", None, 0),
        ([(5.4, 8)], "answered", 400, 0),
        ([(5.0, 8)], "answered", 0, 0),
        ([(4.9, 8)], "premature", -100, 0),
        ([(2.0, 8)], "premature", -3000, 0),
        # a short word before the user's end is a backchannel, however many; one that lasts beyond it is not
        ([(2.5, 3)], "silent", None, 1),
        ([(2.5, 3), (3.5, 4), (6, 8)], "answered", 1000, 2),
        ([(4.5, 5.2)], "premature", -500, 0),
        ([(2.5, 3.5), (6, 8)], "premature", -2500, 0),
        ([(2.5, 3.499), (6, 8)], "answered", 1000, 1),
        # a backchannel is leading: after the response has begun there is none
        ([(3, 4.5), (4.6, 4.8)], "premature", -2000, 0),
        # speaking before the user began
        ([(1, 3)], "carry_over", None, 0),
        ([(1, 3), (6, 8)], "answered", 1000, 0),
        ([(1, 3), (3.4, 4), (6, 8)], "answered", 1000, 1),
        ([(1, 1.9)], "silent", None, 0),
        # the window closes 15 s after the user's end
        ([(19.9, 22)], "answered", 14900, 0),
        ([(20.0, 22)], "silent", None, 0),
    ],
)
def test_outcomes(
    ranges: list[tuple[float, float]], outcome: str, latency_ms: float | None, backchannels: int
) -> None:
    onset = find_onset(speech(*ranges), SPAN)
    assert (onset.outcome, onset.latency_ms, onset.backchannels) == (outcome, latency_ms, backchannels)


def test_silence_is_censored_at_the_window_or_at_the_turns_end() -> None:
    assert find_onset([], SPAN).censored_at_ms == 15_000
    assert find_onset([], Span(seconds(2), seconds(5), seconds(20), seconds(12))).censored_at_ms == 7_000
    assert find_onset(speech((6, 8)), SPAN).censored_at_ms is None


def test_frames_are_counted_from_the_users_last_frame() -> None:
    span = Span(0, 10 * FRAME_SAMPLES + 5, seconds(20), seconds(25))
    start = 12 * FRAME_SAMPLES + 1
    onset = find_onset([Segment(start=start, end=start + seconds(1))], span)
    assert onset.latency_frames == 2


def test_speech_after_the_turn_belongs_to_the_next_one() -> None:
    span = Span(seconds(2), seconds(5), seconds(20), seconds(7))
    assert find_onset(speech((7.5, 9)), span).outcome == "silent"
    assert find_onset(speech((6, 9)), span).segments[-1].end == seconds(7)


def test_talking_over_is_a_share_of_the_users_speech() -> None:
    assert overlap_share(speech((1, 3), (4.5, 9)), SPAN) == pytest.approx(0.5)
    assert overlap_share([], SPAN) == 0


@given(
    ranges=st.lists(st.tuples(st.integers(0, 500_000), st.integers(3_000, 60_000)), max_size=6),
    shift=st.integers(0, 1_000_000),
)
def test_a_shifted_conversation_has_the_same_latency(ranges: list[tuple[int, int]], shift: int) -> None:
    at, found = 0, list[Segment]()
    for gap, length in ranges:
        found.append(Segment(start=at + gap, end=at + gap + length))
        at = found[-1].end + 7_200
    moved = [Segment(start=s.start + shift, end=s.end + shift) for s in found]
    span = Span(*(getattr(SPAN, name) + shift for name in ("user_start", "user_end", "window_end", "end")))
    here, there = find_onset(found, SPAN), find_onset(moved, span)
    assert (here.outcome, here.latency_ms, here.backchannels) == (
        there.outcome,
        there.latency_ms,
        there.backchannels,
    )


def marks(*stages: tuple[float, str]) -> list[Event]:
    return [StageMark(samples_to_ns(seconds(at)), 0, stage) for at, stage in stages]


STAGES = (
    (5.5, "speech_end"),
    (5.7, "asr_done"),
    (5.9, "llm_first_token"),
    (6.0, "first_sentence"),
    (6.3, "tts_first_chunk"),
)


def test_the_parts_of_the_latency_add_up_to_it() -> None:
    onset = find_onset(speech((6.37, 8)), SPAN)
    parts = stages_of(onset, [*marks(*STAGES), TextOut(0, 0, "x")])
    assert list(parts) == ["vad", "asr", "llm", "sentence", "tts", "playout"]
    assert parts["vad"] == pytest.approx(500) and parts["playout"] == pytest.approx(70)
    assert sum(parts.values()) == pytest.approx(onset.latency_ms, abs=1e-9)


def test_the_last_attempt_before_the_onset_counts() -> None:
    onset = find_onset(speech((6.37, 8)), SPAN)
    before = ((3.0, "speech_end"), (3.2, "asr_done"), (3.3, "llm_first_token"))
    after = ((7.5, "speech_end"), (7.7, "asr_done"), (7.8, "tts_first_chunk"))
    assert stages_of(onset, marks(*before, *STAGES, *after)) == stages_of(onset, marks(*STAGES))


def test_a_stage_that_is_not_marked_is_part_of_the_next() -> None:
    onset = find_onset(speech((6.37, 8)), SPAN)
    parts = stages_of(onset, marks((5.5, "speech_end"), (6.3, "tts_first_chunk")))
    assert list(parts) == ["vad", "tts", "playout"]
    assert parts["tts"] == pytest.approx(800)


def test_no_marks_or_no_response_have_no_parts() -> None:
    assert stages_of(find_onset(speech((6, 8)), SPAN), []) == {}
    assert stages_of(find_onset([], SPAN), marks(*STAGES)) == {}

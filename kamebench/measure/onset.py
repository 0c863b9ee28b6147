"""When the system answered: from segments of speech and the user's span to an outcome and a latency."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kamebench.audio import FRAME_SAMPLES, samples_to_ms, seconds
from kamebench.records import Onset, Segment

BACKCHANNEL = seconds(1.0)


@dataclass(frozen=True, slots=True)
class Span:
    """Where a turn lies in the recording, in samples, half-open.

    window_end: responses that start later do not count. end: where the turn ended.
    """

    user_start: int
    user_end: int
    window_end: int
    end: int


def find_onset(speech: Sequence[Segment], span: Span) -> Onset:
    """The outcome of a turn whose system track holds `speech` (in order, short gaps merged).

    The response is the first segment that starts after the user's first sample of speech. Leading segments
    that end before the user does and are shorter than 1 s are backchannels: counted and skipped.
    """
    begun = [s for s in speech if span.user_start <= s.start < min(span.window_end, span.end)]
    backchannels = 0
    while begun and begun[0].end < span.user_end and begun[0].end - begun[0].start < BACKCHANNEL:
        begun.pop(0)
        backchannels += 1
    heard = tuple(
        Segment(start=s.start, end=min(s.end, span.end))
        for s in speech
        if s.end > span.user_start and s.start < span.end
    )
    if begun:
        start = begun[0].start
        return Onset(
            outcome="answered" if start >= span.user_end else "premature",
            user_start_sample=span.user_start,
            user_end_sample=span.user_end,
            onset_sample=start,
            latency_ms=samples_to_ms(start - span.user_end),
            latency_frames=start // FRAME_SAMPLES - span.user_end // FRAME_SAMPLES,
            backchannels=backchannels,
            segments=heard,
        )
    speaking = any(s.start < span.user_start < s.end for s in speech)
    watched_s = (min(span.window_end, span.end) - span.user_end) / seconds(1)
    return Onset(
        outcome="carry_over" if speaking else "silent",
        user_start_sample=span.user_start,
        user_end_sample=span.user_end,
        censored_at_ms=watched_s * 1000,
        backchannels=backchannels,
        segments=heard,
        reason="was speaking before the user began and did not start anew"
        if speaking
        else f"no response within {watched_s:.1f} s after the user's end",
    )


def overlap_share(speech: Sequence[Segment], span: Span) -> float:
    """Share of the user's span during which the system spoke."""
    covered = sum(max(0, min(s.end, span.user_end) - max(s.start, span.user_start)) for s in speech)
    return covered / max(1, span.user_end - span.user_start)

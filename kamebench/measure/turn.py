"""One turn, or one stereo file, measured. Pure functions of the samples."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from kamebench.audio import FRAME_SAMPLES, Pcm, samples_to_ns, seconds
from kamebench.errors import BadAudio
from kamebench.events import Event, StageMark
from kamebench.measure.onset import Span, find_onset, overlap_share
from kamebench.measure.speech import Rules, Track, background_db
from kamebench.records import Onset, Pacing, Segment, TurnMark, TurnMeasure
from kamebench.vad import open_detector
from kamebench.vad.base import Detector
from kamebench.vad.energy import EnergyDetector

FLAG_LATE_MS, USELESS_LATE_MS = 40.0, 80.0  # half a frame and a frame
SECOND_DETECTOR = "webrtc"
STAGES = {
    "speech_end": "vad",
    "asr_done": "asr",
    "llm_first_token": "llm",
    "first_sentence": "sentence",
    "tts_first_chunk": "tts",
}
"""Mark that ends a part of the latency -> name of the part; the last part is `playout`."""


@dataclass(frozen=True, slots=True)
class TrackSpeech:
    """Speech in a system track: as measured, and by each variant of the error budget."""

    measured: tuple[Segment, ...]
    variants: dict[str, tuple[Segment, ...]]


def speech_of(system: Pcm, detector: Detector | None = None, rules: Rules | None = None) -> TrackSpeech:
    """Find speech in float32 [n], and again with edges 6 dB lower and higher and with a second detector."""
    rules = rules or Rules()
    track = Track(system, detector or open_detector(), rules)
    lower, higher = (replace(rules, edge_db=rules.edge_db + shift) for shift in (-6.0, 6.0))
    second = Track(system, open_detector(SECOND_DETECTOR), rules)
    variants = {
        "edge -6 dB": tuple(track.segments(lower)),
        "edge +6 dB": tuple(track.segments(higher)),
        SECOND_DETECTOR: tuple(second.segments(rules)),
    }
    return TrackSpeech(tuple(track.segments(rules)), variants)


def measure_turn(
    system: Pcm,
    *,
    user_start: int,
    user_end: int,
    window_end: int,
    end: int,
    detector: Detector | None = None,
) -> Onset:
    """When the system answered in one turn.

    Args:
        system: the system's whole track, float32 [n] at 24 000 Hz.
        user_start, user_end: the user's first sample of speech and one past the last.
        window_end: responses that start later do not count.
        end: where the turn ended.
        detector: default Silero.
    """
    track = Track(system, detector or open_detector(), Rules())
    return find_onset(track.segments(Rules()), Span(user_start, user_end, window_end, end))


def measure_recording(
    user: Pcm, system: Pcm, detector: Detector | None = None, window_s: float = 15.0
) -> Onset:
    """When the system answered in a recording of one turn: float32 [n] each at 24 000 Hz.

    The user's speech is taken from the user's own track: from the first to the last 10 ms window within
    40 dB of the loudest, where the track is quiet enough to tell by level; else as the system's is.

    Raises:
        BadAudio: shorter than one frame of 80 ms, or the user's track is silent.
    """
    if len(system) < FRAME_SAMPLES:
        raise BadAudio(
            f"holds {len(system)} samples, less than one frame ({FRAME_SAMPLES}). Give a whole recording."
        )
    detector = detector or open_detector()
    by_level = background_db(user) < Rules().edge_db
    spoken = Track(user, EnergyDetector() if by_level else detector, Rules()).segments(Rules())
    if not spoken:
        raise BadAudio("the left channel (the user) holds no speech. Put the user left and the system right.")
    user_end = spoken[-1].end
    return measure_turn(
        system,
        user_start=spoken[0].start,
        user_end=user_end,
        window_end=user_end + seconds(window_s),
        end=len(system),
        detector=detector,
    )


def judge_turn(
    question_id: str, mark: TurnMark, speech: TrackSpeech, events: Iterable[Event], since: int
) -> TurnMeasure:
    """Everything about a turn of a stored session.

    Args:
        mark: where the turn lies.
        speech: of the whole session's system track.
        events: the session's timeline, in order.
        since: end of the turn before, in samples; speech from there to the user's start was unprompted.
    """
    span = Span(mark.user_start_sample, mark.user_end_sample, mark.window_end_sample, mark.end_sample)
    onset = find_onset(speech.measured, span)
    response = [s for s in onset.segments if onset.onset_sample is not None and s.start >= onset.onset_sample]
    sensitivity = {name: find_onset(found, span).latency_ms for name, found in speech.variants.items()}
    return TurnMeasure(
        question_id=question_id,
        turn=mark.turn,
        onset=onset,
        flags=_flags(mark, speech.measured, since),
        talk_over_share=overlap_share(onset.segments, span),
        response_s=(response[-1].end - response[0].start) / seconds(1) if response else None,
        speech_s=sum(s.end - s.start for s in response) / seconds(1) if response else None,
        pacing_usable=mark.pacing.max_ms <= USELESS_LATE_MS,
        stages_ms=stages_of(onset, events),
        sensitivity_ms=sensitivity,
    )


def _flags(mark: TurnMark, speech: Sequence[Segment], since: int) -> tuple[str, ...]:
    flags: list[str] = []
    pause = seconds(Rules().merge_gap_s)
    if mark.end_reason == "limit" and any(s.start < mark.end_sample < s.end + pause for s in speech):
        flags.append("truncated")
    if late(mark.pacing):
        flags.append("late_frames")
    if any(since <= s.start < mark.user_start_sample for s in speech):
        flags.append("unprompted")
    return tuple(flags)


def late(pacing: Pacing) -> bool:
    return pacing.max_ms > FLAG_LATE_MS


def stages_of(onset: Onset, events: Iterable[Event]) -> dict[str, float]:
    """Parts of the latency in ms, in order; they add up to it. Empty where the system marks no stages.

    A part runs from the mark before it (the first one: from the user's end) to its own mark, `playout` from
    the last mark to the onset. Of several marks the ones that led to this onset count: the last before it.
    """
    if onset.onset_sample is None or onset.latency_ms is None:
        return {}
    start_ns, before_ns = samples_to_ns(onset.user_start_sample), samples_to_ns(onset.onset_sample)
    marks = [e for e in events if isinstance(e, StageMark) and start_ns < e.t_ns <= before_ns]
    reached: dict[str, int] = {}
    for stage in reversed(STAGES):
        times = [mark.t_ns for mark in marks if mark.stage == stage and mark.t_ns <= before_ns]
        if times:
            reached[stage] = before_ns = max(times)
    parts: dict[str, float] = {}
    at_ns = samples_to_ns(onset.user_end_sample)
    for stage, part in STAGES.items():
        if stage in reached:
            parts[part] = (reached[stage] - at_ns) / 1e6
            at_ns = reached[stage]
    return parts | {"playout": onset.latency_ms - sum(parts.values())} if parts else {}

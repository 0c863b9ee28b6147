"""One session as a picture: two tracks as peaks, marks, words and injections, all against time."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kamebench.audio import FRAME_SAMPLES, SAMPLE_RATE, Pcm, read_two_tracks
from kamebench.errors import BadAudio, KamebenchError
from kamebench.events import AudioOut, Heard, OracleIn, TextOut
from kamebench.records import SessionRecord, TurnRecord
from kamebench.store import AUDIO, Run

PEAK_PX = 2
MIN_PX_PER_S, MAX_PX_PER_S, TARGET_PX = 40.0, 100.0, 1080.0
TRACK_PX = 72
LANES = 3
CHAR_PX = 6.4


@dataclass(frozen=True)
class Word:
    """A piece of text that begins at `x` in one of a few lanes."""

    x: float
    lane: int
    text: str
    t_s: float


@dataclass(frozen=True)
class Injected:
    """An oracle update: `state` is reset, used, stale (a newer request had begun) or dropped."""

    x: float
    t_s: float
    text: str
    state: str
    request_id: int


@dataclass(frozen=True)
class Mark:
    """A turn's marks in pixels; absent ones are None."""

    turn: int
    user_start_x: float
    user_end_x: float
    onset_x: float | None
    user_end_s: float
    onset_s: float | None
    outcome: str
    latency_ms: float | None
    segments: tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Timeline:
    """What the template draws. `user`, `system`: SVG paths of peaks, empty without a recording."""

    width: float
    px_per_s: float
    frame_px: float
    duration_s: float
    user: str
    system: str
    seconds: tuple[tuple[float, int], ...]
    marks: tuple[Mark, ...]
    said: tuple[Word, ...]
    heard: tuple[Word, ...]
    injections: tuple[Injected, ...]


def timeline(
    run: Run, session: SessionRecord, turns: Sequence[TurnRecord], tracks: tuple[Pcm, Pcm] | None
) -> Timeline:
    """Lay a session out. The scale fits the page, within 40 to 100 px a second."""
    duration_s = session.n_samples / SAMPLE_RATE
    scale = min(max(TARGET_PX / max(duration_s, 0.1), MIN_PX_PER_S), MAX_PX_PER_S)
    scale = round(scale, 2)
    said, heard, injections = _events(run, session.question_id, scale)
    return Timeline(
        width=round(duration_s * scale, 1),
        px_per_s=scale,
        frame_px=round(scale * FRAME_SAMPLES / SAMPLE_RATE, 3),
        duration_s=round(duration_s, 3),
        user=peaks(tracks[0], scale) if tracks else "",
        system=peaks(tracks[1], scale) if tracks else "",
        seconds=tuple((round(s * scale, 1), s) for s in range(int(duration_s) + 1)),
        marks=tuple(_mark(turn, scale) for turn in turns if turn.mark is not None),
        said=said,
        heard=heard,
        injections=injections,
    )


def tracks_of(run: Run, question_id: str) -> tuple[Pcm, Pcm] | None:
    """Both tracks, or None where the recording is not kept or cannot be read."""
    path = run.session_folder(question_id) / AUDIO
    if not path.is_file():
        return None
    try:
        return read_two_tracks(path)
    except BadAudio:
        return None


def peaks(pcm: Pcm, px_per_s: float, half_px: float = TRACK_PX / 2 - 2) -> str:
    """Loudest positive and negative sample of every column as one SVG path around y = 0.

    The amplitude is drawn as its square root, so that quiet speech can be seen.
    """
    per_column = max(1, round(SAMPLE_RATE * PEAK_PX / px_per_s))
    n = -(-len(pcm) // per_column)
    blocks = np.pad(pcm, (0, n * per_column - len(pcm))).reshape(n, per_column)
    high = np.rint(np.sqrt(np.clip(blocks.max(axis=1), 0, 1)) * half_px).astype(int)
    low = np.rint(np.sqrt(np.clip(-blocks.min(axis=1), 0, 1)) * half_px).astype(int)
    loud = np.flatnonzero(high + low)
    step = per_column / SAMPLE_RATE * px_per_s
    return "".join(f"M{i * step:.0f} {-high[i]}V{low[i]}" for i in loud)


def _mark(turn: TurnRecord, scale: float) -> Mark:
    onset = turn.measure.onset

    def at(sample: int) -> float:
        return round(sample / SAMPLE_RATE * scale, 1)

    return Mark(
        turn=turn.turn,
        user_start_x=at(onset.user_start_sample),
        user_end_x=at(onset.user_end_sample),
        onset_x=None if onset.onset_sample is None else at(onset.onset_sample),
        user_end_s=round(onset.user_end_sample / SAMPLE_RATE, 3),
        onset_s=None if onset.onset_sample is None else round(onset.onset_sample / SAMPLE_RATE, 3),
        outcome=onset.outcome,
        latency_ms=onset.latency_ms,
        segments=tuple((at(s.start), round(max(at(s.end) - at(s.start), 1.0), 1)) for s in onset.segments),
    )


def _events(
    run: Run, question_id: str, scale: float
) -> tuple[tuple[Word, ...], tuple[Word, ...], tuple[Injected, ...]]:
    said: list[tuple[float, str]] = []
    heard: list[tuple[float, str]] = []
    oracle: list[OracleIn] = []
    for event in run.events(question_id):
        t_s = event.t_ns / 1e9
        if isinstance(event, TextOut) and event.text.strip():
            said.append((t_s, event.text))
        elif isinstance(event, Heard) and event.final:
            heard.append((t_s, event.text))
        elif isinstance(event, OracleIn):
            oracle.append(event)
        elif isinstance(event, AudioOut):
            continue
    injections = logged(run, question_id, scale) or _plain(oracle, scale)
    return lanes(merged(said), scale), lanes(heard, scale), injections


def merged(pieces: Sequence[tuple[float, str]], gap_s: float = 0.6) -> list[tuple[float, str]]:
    """Join tokens of one phrase, so that a word every 80 ms can be read."""
    out: list[tuple[float, str]] = []
    last_s = float("-inf")
    for t_s, text in pieces:
        if out and t_s - last_s <= gap_s and len(out[-1][1]) < 24:
            out[-1] = (out[-1][0], out[-1][1] + text)
        else:
            out.append((t_s, text))
        last_s = t_s
    return out


def lanes(pieces: Sequence[tuple[float, str]], scale: float) -> tuple[Word, ...]:
    """Spread texts over lanes so that they do not run into each other; the last lane may be crowded."""
    free = [0.0] * LANES
    words: list[Word] = []
    for t_s, text in pieces:
        x = round(t_s * scale, 1)
        lane = next(
            (i for i, until in enumerate(free) if until <= x), min(range(LANES), key=lambda i: free[i])
        )
        room = " ".join(text.split())
        shown = room if len(room) <= 60 else room[:59] + "…"
        free[lane] = x + len(shown) * CHAR_PX + 6
        words.append(Word(x, lane, shown, round(t_s, 2)))
    return tuple(words)


def _plain(events: Sequence[OracleIn], scale: float) -> tuple[Injected, ...]:
    return tuple(
        Injected(
            x=round(e.t_ns / 1e9 * scale, 1),
            t_s=round(e.t_ns / 1e9, 2),
            text=e.text,
            state="reset" if e.reset else "used",
            request_id=e.request_id,
        )
        for e in events
    )


def logged(run: Run, question_id: str, scale: float) -> tuple[Injected, ...]:
    """Injections of the session's oracle log: what was applied, what came stale, what was dropped."""
    from kamebench.oracle.log import ORACLE_LOG, read

    folder = run.session_folder(question_id)
    if not (folder / ORACLE_LOG).is_file():
        return ()
    try:
        log = read(folder)
    except KamebenchError:
        return ()
    asked = [(r.frame, r.request_id) for r in log.requests]
    rows: list[Injected] = []
    every = [(row, True) for row in log.injections] + [(row, False) for row in log.dropped]
    for row, applied in every:
        newest = max((number for frame, number in asked if frame <= row.frame), default=0)
        state = "reset" if row.reset else "stale" if row.request_id < newest else "used"
        t_s = row.frame * FRAME_SAMPLES / SAMPLE_RATE
        rows.append(
            Injected(
                x=round(t_s * scale, 1),
                t_s=round(t_s, 2),
                text=row.text,
                state=state if applied else "dropped",
                request_id=row.request_id,
            )
        )
    return tuple(sorted(rows, key=lambda i: (i.t_s, i.request_id, i.state)))


def word_differences(own: str | None, heard: str | None) -> tuple[tuple[str, str], ...]:
    """("same" | "only own" | "only heard", words) between the system's own text and its transcript."""
    if not own or not heard:
        return ()
    a, b = own.split(), heard.split()
    plain_a, plain_b = ([w.strip(".,;:!?\"'()").lower() for w in words] for words in (a, b))
    out: list[tuple[str, str]] = []
    for tag, i, j, k, n in difflib.SequenceMatcher(None, plain_a, plain_b, autojunk=False).get_opcodes():
        if tag == "equal":
            out.append(("same", " ".join(b[k:n])))
            continue
        if i < j:
            out.append(("only own", " ".join(a[i:j])))
        if k < n:
            out.append(("only heard", " ".join(b[k:n])))
    return tuple(out)

"""What the injection log says: the oracle stream the model saw, and the oracles of a turn. Pure functions.

The oracle stream (KAME): a reset at step s begins a stream whose first token is the initial token and whose
origin is s; appended tokens join its end; step t consumes the token at index t - s, or padding where there
is none. So tokens appended at indices that have passed are never seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pydantic import Field

from kamebench.audio import FRAME_SAMPLES
from kamebench.events import AudioOut, Event, OutputFlushed
from kamebench.oracle.log import Injection, OracleLog, Summary
from kamebench.playout import Playout
from kamebench.records import Record, TurnMark

FOREVER = 1 << 62


@dataclass(frozen=True, slots=True)
class TurnWindow:
    """Steps [start_frame, end_frame) that lie between the user's first sample and the turn's end."""

    start_frame: int = 0
    end_frame: int = FOREVER

    @staticmethod
    def of(mark: TurnMark) -> TurnWindow:
        """Step k happens at sample 1920 k, so a sample inside a frame belongs to the next step."""
        return TurnWindow(-(-mark.user_start_sample // FRAME_SAMPLES), -(-mark.end_sample // FRAME_SAMPLES))


SESSION = TurnWindow()


@dataclass(slots=True)
class Stream:
    """One oracle stream, from its reset to the next: steps [origin, end)."""

    origin: int
    request_id: int
    end: int = FOREVER
    injections: list[Injection] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(injection.text for injection in self.injections)

    @property
    def n_tokens(self) -> int | None:
        """Tokens appended, the initial one not counted; None where the log does not hold them."""
        tokens = [injection.tokens for injection in self.injections]
        return None if None in tokens else sum(len(t) for t in tokens if t is not None)

    def seen(self, up_to_step: int) -> list[tuple[int, str]]:
        """(token, piece) consumed by steps [origin, min(end, up_to_step + 1)), the initial one left out."""
        found: list[tuple[int, str]] = []
        index = 1
        for injection in self.injections:
            for token, piece in zip(injection.tokens or (), injection.pieces or (), strict=False):
                step = self.origin + index
                if injection.frame <= step <= up_to_step and step < self.end:
                    found.append((token, piece))
                index += 1
        return found


class Oracle(Record):
    """An oracle of a turn, or None with the reason why there is none.

    `text` is what was appended, raw; `tokens` how many that were, `consumed` how many the model saw,
    `consumed_text` how those read.
    """

    text: str | None
    reason: str = ""
    request_ids: tuple[int, ...] = ()
    begun_frame: int | None = None
    tokens: int | None = None
    consumed: int | None = None
    consumed_share: float | None = Field(default=None, ge=0, le=1)
    consumed_text: str | None = None
    completed: bool = False
    finish_reason: str | None = None


class OracleAtOnset(Record):
    """The oracle at one step: `consumed_text` read by then, `injected_text` appended by then, and the full
    answer of the newest request in it (`full_text`). None with the reason where there was none."""

    consumed_text: str | None
    injected_text: str | None
    full_text: str | None
    reason: str = ""
    request_id: int | None = None
    begun_frame: int | None = None
    consumed: int | None = None
    injected: int | None = None


def streams(log: OracleLog) -> list[Stream]:
    """All oracle streams in order. The first append begins one even where no reset came before."""
    found: list[Stream] = []
    for injection in log.injections:
        if injection.reset or not found:
            if found:
                found[-1].end = injection.frame
            found.append(Stream(injection.frame, injection.request_id))
        if not injection.reset:
            found[-1].injections.append(injection)
    return found


def rebuild_stream(log: OracleLog, n_frames: int | None = None) -> tuple[int, ...] | None:
    """The oracle token consumed at each step 0..n_frames-1, from the injections alone.

    Args:
        n_frames: default as many steps as the log holds.

    Returns:
        None where the log holds no tokens (a server whose tokenizer is not known).
    """
    header = log.header
    if header.pad_id is None or header.initial_id is None:
        return None
    length = len(log.steps) if n_frames is None else n_frames
    out = [header.pad_id] * length
    for stream in streams(log):
        if stream.n_tokens is None:
            return None
        if stream.origin < min(stream.end, length):
            out[stream.origin] = header.initial_id
        index = 1
        for injection in stream.injections:
            for token in injection.tokens or ():
                step = stream.origin + index
                if injection.frame <= step < min(stream.end, length):
                    out[step] = token
                index += 1
    return tuple(out)


def last_injected(log: OracleLog, window: TurnWindow = SESSION) -> Oracle:
    """The last stream begun in the window of which at least one chunk was appended before its end."""
    for stream in reversed(streams(log)):
        if _belongs(stream, window):
            return _oracle(log, stream)
    return Oracle(text=None, reason=_why_none(log, window))


def last_completed(log: OracleLog, window: TurnWindow = SESSION) -> Oracle:
    """As `last_injected`, of the streams whose request the back-end had finished within the window."""
    for stream in reversed(streams(log)):
        if _belongs(stream, window) and _completed(log, stream, window.end_frame):
            return _oracle(log, stream)
    reason = _why_none(log, window)
    if last_injected(log, window).text is not None:
        reason = "no request of this turn was finished by the back-end"
    return Oracle(text=None, reason=reason)


def oracle_at_onset(log: OracleLog, onset_frame: int, window: TurnWindow = SESSION) -> OracleAtOnset:
    """The oracle in force at the step that produced the first heard frame (see `step_heard_at`)."""
    in_force = [stream for stream in streams(log) if stream.origin <= onset_frame]
    reason = ""
    if not in_force:
        reason = "nothing was injected before the onset"
    elif in_force[-1].origin < window.start_frame:
        reason = "the oracle at the onset was begun before this turn"
    if reason:
        return OracleAtOnset(consumed_text=None, injected_text=None, full_text=None, reason=reason)
    stream = in_force[-1]
    injected = [injection for injection in stream.injections if injection.frame <= onset_frame]
    request_id = injected[-1].request_id if injected else stream.request_id
    seen = stream.seen(onset_frame)
    known = stream.n_tokens is not None
    return OracleAtOnset(
        consumed_text=spelled([piece for _, piece in seen]) if known else None,
        injected_text="".join(injection.text for injection in injected),
        full_text=log.answer(request_id),
        reason="" if known else "the log holds no tokens",
        request_id=request_id,
        begun_frame=stream.origin,
        consumed=len(seen) if known else None,
        injected=sum(len(injection.tokens or ()) for injection in injected) if known else None,
    )


def step_heard_at(sample: int) -> int:
    """The step whose output is heard at `sample` when nothing was late: frame k is heard from 1920 (k+1)."""
    return sample // FRAME_SAMPLES - 1


def step_heard(events: Iterable[Event], sample: int) -> int | None:
    """The step whose output is heard at `sample`, by the playout of the session's events; None: silence.

    Late output is heard late; where nothing was late this equals `step_heard_at`.
    """
    playout, found = Playout(), None
    for event in events:
        if isinstance(event, OutputFlushed):
            playout.flush(event.t_ns)
        elif isinstance(event, AudioOut):
            start = playout.add(event)
            if start <= sample < start + len(event.pcm):
                found = event.frame
    return found


def spelled(pieces: Sequence[str]) -> str:
    """SentencePiece pieces as text: '▁' is a space."""
    return "".join(pieces).replace("▁", " ").strip()


def staleness(log: OracleLog) -> tuple[int | None, ...]:
    """Per step: frames since the last injection, None before the first."""
    last: int | None = None
    frames = {injection.frame for injection in log.injections}
    out: list[int | None] = []
    for step in log.steps:
        last = step.frame if step.frame in frames else last
        out.append(None if last is None else step.frame - last)
    return tuple(out)


def starved(log: OracleLog) -> tuple[int, ...]:
    """Steps at which an open stream had no token though its request was still running."""
    found: list[int] = []
    n_frames = len(log.steps)
    for stream in streams(log):
        if not stream.injections:
            continue
        request = stream.injections[-1].request_id
        ended = log.ends.get(request)
        until = min(stream.end, ended.frame if ended else FOREVER, n_frames)
        have: dict[int, int] = {}  # step -> frame from which the stream reaches it
        index = 1
        for injection in stream.injections:
            for _ in injection.tokens or ():
                have[stream.origin + index] = injection.frame
                index += 1
        found += [s for s in range(stream.origin + 1, until) if have.get(s, FOREVER) > s]
    return tuple(found)


def summarise(log: OracleLog) -> Summary:
    """Counts over the whole session."""
    outcomes = [end.outcome for end in log.ends.values()]
    found = streams(log)
    totals = [stream.n_tokens for stream in found]
    injected = None if None in totals else sum(t for t in totals if t is not None)
    n_frames = len(log.steps)
    known = injected is not None and log.header.pad_id is not None
    consumed = sum(len(stream.seen(n_frames - 1)) for stream in found) if known else None
    late = _late(found) if known else None
    return Summary(
        requests=len(log.requests),
        completed=outcomes.count("completed"),
        cancelled=outcomes.count("cancelled"),
        failed=outcomes.count("failed"),
        chunks_dropped=sum(not row.reset for row in log.dropped),
        resets_dropped=sum(row.reset for row in log.dropped),
        tokens_injected=injected,
        tokens_consumed=consumed,
        tokens_late=late,
        starved_frames=len(starved(log)) if known else None,
        longest_staleness_frames=max((s for s in staleness(log) if s is not None), default=None),
    )


def _late(found: list[Stream]) -> int:
    """Tokens appended at indices that had passed."""
    late = 0
    for stream in found:
        index = 1
        for injection in stream.injections:
            for _ in injection.tokens or ():
                late += stream.origin + index < injection.frame
                index += 1
    return late


def _belongs(stream: Stream, window: TurnWindow) -> bool:
    begun = window.start_frame <= stream.origin < window.end_frame
    return begun and any(injection.frame < window.end_frame for injection in stream.injections)


def _completed(log: OracleLog, stream: Stream, end_frame: int) -> bool:
    ends = [log.ends.get(request) for request in _requests(stream)]
    return all(end is not None and end.outcome == "completed" and end.frame <= end_frame for end in ends)


def _requests(stream: Stream) -> tuple[int, ...]:
    return tuple(dict.fromkeys(injection.request_id for injection in stream.injections))


def _oracle(log: OracleLog, stream: Stream) -> Oracle:
    total = stream.n_tokens
    seen = stream.seen(len(log.steps) - 1)
    requests = _requests(stream)
    end = log.ends.get(requests[-1])
    return Oracle(
        text=stream.text,
        request_ids=requests,
        begun_frame=stream.origin,
        tokens=total,
        consumed=len(seen) if total is not None else None,
        consumed_share=len(seen) / total if total else None,
        consumed_text=spelled([piece for _, piece in seen]) if total is not None else None,
        completed=end is not None and end.outcome == "completed",
        finish_reason=end.finish_reason if end else None,
    )


def _why_none(log: OracleLog, window: TurnWindow) -> str:
    asked = [r for r in log.requests if window.start_frame <= r.frame < window.end_frame]
    if not asked:
        return "no request was made in this turn"
    failed = [log.ends[r.request_id] for r in asked if r.request_id in log.ends]
    failed = [end for end in failed if end.outcome == "failed"]
    if failed:
        return f"nothing was injected in this turn; the back-end failed: {failed[-1].reason}"
    return "nothing was injected in this turn: no answer began before it ended"

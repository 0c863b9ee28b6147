"""What a system under test reports while it runs: one tagged union, each event with a stream time.

`t_ns` is stream time (see `kamebench.clock`), `frame` the last input frame the system had received, or for
`AudioOut` of a frame-synchronous model the input frame the audio was computed from.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from kamebench.audio import Pcm
from kamebench.errors import Party


@dataclass(frozen=True, slots=True)
class Event:
    """Base: `t_ns` stream nanoseconds, `frame` the last input frame received (-1 before the first)."""

    kind: ClassVar[str]
    t_ns: int
    frame: int


@dataclass(frozen=True, slots=True)
class AudioOut(Event):
    """Audio to be played: float32 [n]. `synchronous`: computed from input frame `frame` itself."""

    kind: ClassVar[str] = "audio_out"
    pcm: Pcm
    synchronous: bool = False


@dataclass(frozen=True, slots=True)
class OutputFlushed(Event):
    """What was queued and not yet heard at `t_ns` was thrown away (barge-in)."""

    kind: ClassVar[str] = "output_flushed"


@dataclass(frozen=True, slots=True)
class TextOut(Event):
    """A piece of the system's own text (inner monologue, or what a cascade sent to synthesis)."""

    kind: ClassVar[str] = "text_out"
    text: str


@dataclass(frozen=True, slots=True)
class Heard(Event):
    """What the system's own recogniser understood of the user, cumulative for the current utterance."""

    kind: ClassVar[str] = "heard"
    text: str
    final: bool


@dataclass(frozen=True, slots=True)
class OracleIn(Event):
    """An oracle update applied before the step of `frame`: a reset, or text appended as `tokens`."""

    kind: ClassVar[str] = "oracle_in"
    request_id: int
    text: str
    tokens: tuple[int, ...]
    reset: bool


@dataclass(frozen=True, slots=True)
class StageMark(Event):
    """A step of the pipeline was reached ("speech_end", "asr_done", "llm_first_token", ...)."""

    kind: ClassVar[str] = "stage"
    stage: str


@dataclass(frozen=True, slots=True)
class TurnStart(Event):
    """The runner began to play the user's audio of `turn` (1-based) with the next frame."""

    kind: ClassVar[str] = "turn_start"
    turn: int


@dataclass(frozen=True, slots=True)
class TurnEnd(Event):
    """The runner saw the end of `turn`: control, not measurement."""

    kind: ClassVar[str] = "turn_end"
    turn: int
    reason: str


@dataclass(frozen=True, slots=True)
class Fault(Event):
    """Something failed; see `kamebench.errors.WorldFault` for the fields."""

    kind: ClassVar[str] = "fault"
    party: Party
    fault: str
    message: str
    retryable: bool = False


@dataclass(frozen=True, slots=True)
class Closed(Event):
    """The system ended the session."""

    kind: ClassVar[str] = "closed"


KINDS: dict[str, type[Event]] = {
    cls.kind: cls
    for cls in (
        AudioOut,
        OutputFlushed,
        TextOut,
        Heard,
        OracleIn,
        StageMark,
        TurnStart,
        TurnEnd,
        Fault,
        Closed,
    )
}


def to_json(event: Event) -> dict[str, Any]:
    """A JSON object; audio is replaced by its length (the samples are in the recording)."""
    row: dict[str, Any] = {"kind": event.kind}
    if isinstance(event, AudioOut):
        return row | {
            "t_ns": event.t_ns,
            "frame": event.frame,
            "n_samples": len(event.pcm),
            "synchronous": event.synchronous,
        }
    return row | asdict(event)


def from_json(row: dict[str, Any]) -> Event:
    """The event of a JSON object; an `AudioOut` comes back as silence of the same length."""
    cls = KINDS[row["kind"]]
    values: dict[str, Any] = {k: v for k, v in row.items() if k != "kind"}
    if cls is AudioOut:
        values["pcm"] = np.zeros(values.pop("n_samples"), np.float32)
    if cls is OracleIn:
        values["tokens"] = tuple(values["tokens"])
    return cls(**values)

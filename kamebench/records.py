"""Every type that is read from or written to disk.

Absence is `None` with a reason beside it, never a number. Sample positions are at 24 000 Hz, half-open,
counted from the start of the session's recording. Fields unknown to this version are refused.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from kamebench.clock import Pace
from kamebench.errors import Party

SCHEMA_VERSION = 1

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Outcome = Literal["answered", "premature", "carry_over", "silent", "fault"]
EndReason = Literal["quiet", "no_response", "limit", "closed", "fault"]
What = Literal[
    "spoken",
    "text-stream",
    "oracle-onset",
    "oracle-onset-injected",
    "oracle-onset-full",
    "oracle-last",
    "oracle-completed",
    "backend-text",
]


class Record(BaseModel):
    """Base of all persisted types: frozen, no unknown fields, no NaN."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class SpokenTurn(Record):
    """One user turn as audio: what was written, what was said, and where speech begins and ends in it."""

    text_written: str
    text_spoken: str
    audio_sha256: Sha256
    n_samples: int = Field(gt=0)
    speech_start_sample: int = Field(ge=0, description="first sample of speech")
    speech_end_sample: int = Field(gt=0, description="one past the last sample of speech")
    engine: str
    engine_version: str
    voice: str


class FaultInfo(Record):
    """What failed, whose fault it is, and whether the same call may succeed later."""

    party: Party
    kind: str
    message: str
    retryable: bool = False
    turn: int | None = Field(
        default=None, description="the turn being played, 1-based; None before the first"
    )


class Pacing(Record):
    """Lateness of sent frames against the schedule, in ms of the monotonic clock."""

    p50_ms: float
    p99_ms: float
    max_ms: float


class TurnMark(Record):
    """Where one turn lies in the session's recording. Written by the session, never by a measure."""

    turn: int = Field(ge=1)
    spoken: SpokenTurn
    start_sample: int = Field(ge=0, description="first sample of the turn's audio file in the session")
    user_start_sample: int
    user_end_sample: int = Field(description="one past the user's last sample of speech")
    window_end_sample: int = Field(description="responses that start later do not count")
    end_sample: int = Field(description="where the turn ended; the next one starts at or after it")
    end_reason: EndReason
    waited_s: float = Field(ge=0, description="silence played before the turn until the system was quiet")
    pacing: Pacing


class SessionRecord(Record):
    """One conversation with a system; written last, so that its presence means the recording is whole."""

    schema_version: int = SCHEMA_VERSION
    question_id: str
    category: str
    attempt: int = Field(default=1, ge=1)
    seed: int
    started_at: str
    pace: Pace
    turns: tuple[TurnMark, ...]
    n_turns_expected: int = Field(ge=1)
    fault: FaultInfo | None = None
    n_samples: int
    clipped_samples: int
    end_pointer: str
    files: dict[str, Sha256] = Field(description="hash of every other file of the session's folder")


class Segment(Record):
    """A stretch of speech: samples [start, end)."""

    start: int
    end: int


class Onset(Record):
    """When the system answered. Sample positions are absolute in the recording.

    `latency_samples` is signed: response start minus the user's end; None unless answered or premature.
    """

    outcome: Outcome
    user_start_sample: int
    user_end_sample: int
    onset_sample: int | None = None
    latency_ms: float | None = None
    latency_frames: int | None = Field(default=None, description="onset_frame - user_end_frame")
    censored_at_ms: float | None = Field(
        default=None, description="silent: the window's length after the end"
    )
    backchannels: int = Field(default=0, ge=0)
    segments: tuple[Segment, ...] = ()
    reason: str = ""


class TurnMeasure(Record):
    """Everything measured about one turn; a pure function of the recording."""

    question_id: str
    turn: int
    onset: Onset
    flags: tuple[str, ...] = ()
    talk_over_share: float | None = Field(default=None, ge=0, le=1)
    response_s: float | None = Field(default=None, ge=0, description="from response start to its last speech")
    speech_s: float | None = Field(default=None, ge=0, description="detected speech within the response")
    pacing_usable: bool = True
    stages_ms: dict[str, float] = Field(default_factory=dict, description="parts of the latency, in order")
    sensitivity_ms: dict[str, float | None] = Field(
        default_factory=dict, description="latency with another threshold or detector, by name"
    )


class MeasureFile(Record):
    """`measures.json`: one row a turn that was played, with every setting used."""

    schema_version: int = SCHEMA_VERSION
    settings: dict[str, Any]
    turns: tuple[TurnMeasure, ...]


class Transcript(Record):
    """The system's speech of one turn as text, or None with the reason why there is none."""

    question_id: str
    turn: int
    text: str | None
    normalised: str | None = None
    reason: str = ""
    flags: tuple[str, ...] = ()
    user_text: str | None = Field(default=None, description="the user's audio through the same recogniser")
    user_wer: float | None = Field(default=None, ge=0)
    own_text: str | None = Field(default=None, description="the system's own text stream of the turn")
    own_wer: float | None = Field(default=None, ge=0, description="own text against own audio")
    words_per_minute: float | None = None


class TranscriptFile(Record):
    """`transcripts.json`."""

    schema_version: int = SCHEMA_VERSION
    recogniser: str
    settings: dict[str, Any]
    turns: tuple[Transcript, ...]


class Verdict(Record):
    """A judge's answer about one turn. Only `scored` and `silent` carry a score."""

    question_id: str
    turn: int
    status: Literal["scored", "silent", "unparsed", "judge_fault", "missing"]
    score: float | None = Field(default=None, ge=1, le=10)
    reason: str = Field(default="", description="why there is no score, or a short account of the score")
    explanation: str = Field(default="", description="the judge's own words")
    answer: str | None = None
    reference: str | None = None
    attempts: int = Field(default=0, ge=0)
    repeats: tuple[float, ...] = Field(
        default=(), description="all scores, where the judge was asked k times"
    )
    detail: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _score_fits_status(self) -> Self:
        if (self.score is not None) != (self.status in ("scored", "silent")):
            raise ValueError(f"status '{self.status}' and score {self.score} contradict each other")
        return self


class VerdictFile(Record):
    """`scores/<judge>.<what>.json`: one row a turn of the run, missing ones included."""

    schema_version: int = SCHEMA_VERSION
    judge: str
    what: What = "spoken"
    settings: dict[str, Any] = Field(
        description="model, temperature, prompts' hashes, reference set, preset, ..."
    )
    comparable_with_llm_judge: bool = True
    warnings: tuple[str, ...] = Field(default=(), description="what a reader should know about this judging")
    summary: dict[str, Any] = Field(
        default_factory=dict, description="spread, agreement, usage of the judging"
    )
    turns: tuple[Verdict, ...]

    @property
    def name(self) -> str:
        return f"{self.judge}.{self.what}"


class Aggregate(Record):
    """A mean or quantile of one metric over one group; no interval under five questions."""

    metric: str
    group: str
    n: int
    n_missing: int
    value: float | None
    low: float | None = None
    high: float | None = None
    method: str = ""
    reason: str = ""


UNCOUNTED = "stretches_uncounted"


def cost_of(usage: dict[str, Any]) -> float | None:
    """Sum of every `cost_usd` in a usage; None where there is none."""
    found: list[float] = []
    for name, value in usage.items():
        if isinstance(value, dict):
            inner = cost_of(value)  # pyright: ignore[reportUnknownArgumentType]
            found += [] if inner is None else [inner]
        elif name == "cost_usd" and isinstance(value, int | float):
            found.append(float(value))
    return sum(found) if found else None


class Manifest(Record):
    """Written first with status `running`, last with `complete`: the latter marks the run as whole."""

    schema_version: int = SCHEMA_VERSION
    kamebench_version: str
    run_id: str
    status: Literal["running", "complete"]
    started_at: str
    finished_at: str | None = None
    system: str
    backend: str | None
    label: str = Field(description="how the run is called in tables")
    role: Literal["system", "floor", "topline"] = "system"
    task: str
    task_version: str
    task_sha256: Sha256
    pace: Pace
    seed: int
    questions: tuple[str, ...] = Field(description="ids asked, in order")
    n_turns: int = Field(description="turns that a whole run holds")
    configuration: dict[str, Any] = Field(description="the resolved system file, options and judge")
    audio: dict[str, Sha256] = Field(description="'question/turn' -> hash of the user's audio")
    assets: dict[str, Sha256] = Field(default_factory=dict, description="weights and data used")
    packages: dict[str, str] = Field(default_factory=dict)
    hardware: dict[str, Any] = Field(default_factory=dict)
    git_commit: str | None = None
    git_dirty: bool | None = None
    usage: dict[str, Any] = Field(default_factory=dict, description="requests, tokens, cost by provider")
    primary_score: str | None = Field(default=None, description="name of the headline score file")
    resumed: tuple[str, ...] = Field(default=(), description="when the run was taken up again")
    files: dict[str, Sha256] = Field(default_factory=dict, description="hash of every file of a complete run")
    seal: str = Field(default="", description="hash of a complete run's manifest without this field")

    @property
    def cost_usd(self) -> float | None:
        """US dollars of all requests, where the run's usage states them."""
        return cost_of(self.usage)

    @property
    def uncounted(self) -> int:
        """How often the run was killed: what was asked in those stretches is in no sum."""
        return int(self.usage.get(UNCOUNTED, 0))


class TurnRecord(Record):
    """One turn of a run with everything known about it: the join of the files above."""

    question_id: str
    category: str
    turn: int
    mark: TurnMark | None
    fault: FaultInfo | None
    measure: TurnMeasure
    transcript: Transcript | None
    verdicts: dict[str, Verdict]

"""The injection log, `oracle.jsonl`: one JSON object a line, in the order things happened.

`frame` is the index of the model's step that came next: an injection of frame k was applied before step k,
which happens at sample 1920 k of the session. `t_ns` is stream time. Everything derived (`rebuild.py`) is a
function of this file alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from kamebench.errors import BadRun
from kamebench.llm.base import Message
from kamebench.oracle.policy import Reason
from kamebench.records import Record

ORACLE_LOG = "oracle.jsonl"
LOG_SCHEMA_VERSION = 1
PADDING_TOKENS = (0, 3)  # text tokens that are not words (Moshi's vocabulary)

RequestOutcome = Literal["completed", "cancelled", "failed"]
DropReason = Literal["queue_full", "session_ended"]


class Header(Record):
    """First row. `pad_id` is consumed where the stream holds nothing, `initial_id` at its origin.

    Both are None where the log was taken from a server whose tokenizer is not known.
    """

    kind: Literal["header"] = "header"
    schema_version: int = LOG_SCHEMA_VERSION
    source: Literal["kame", "kame-server"] = "kame"
    pad_id: int | None = None
    initial_id: int | None = None
    settings: dict[str, Any] = Field(default_factory=dict, description="policy, chunking, queue, back-end")


class Messages(Record):
    """The messages of one or more requests, stored once under their hash."""

    kind: Literal["messages"] = "messages"
    sha256: str
    messages: tuple[tuple[str, str], ...] = Field(description="(role, content)")


class HeardRow(Record):
    """A result of the streaming recogniser."""

    kind: Literal["heard"] = "heard"
    frame: int
    t_ns: int
    text: str
    final: bool


class Request(Record):
    """A request to the back-end was started."""

    kind: Literal["request"] = "request"
    request_id: int = Field(ge=1)
    frame: int
    t_ns: int
    reason: Reason | None = Field(description="None where a server's log does not say")
    trigger: str | None = Field(description="the pending text, else the latest final one")
    committed: str | None = Field(description="all final user text so far")
    pending: str | None
    committed_words: int | None
    pending_words: int | None
    messages_sha256: str | None
    temperature: float | None
    turn: int | None = Field(default=None, description="the turn being played, 1-based")


class Chunk(Record):
    """A chunk of an answer as it came, spaces kept."""

    kind: Literal["chunk"] = "chunk"
    request_id: int
    frame: int
    t_ns: int
    text: str


class RequestEnd(Record):
    """A request ended; `reason` says why it was cancelled or how it failed."""

    kind: Literal["request_end"] = "request_end"
    request_id: int
    frame: int
    t_ns: int
    outcome: RequestOutcome
    reason: str = ""
    finish_reason: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None


class Injection(Record):
    """Applied before step `frame`: a reset (no text), or text appended as `tokens`.

    `pieces` is how the tokens are spelled. Both are None where a server's log does not hold them.
    """

    kind: Literal["injection"] = "injection"
    request_id: int
    frame: int
    t_ns: int
    reset: bool
    text: str = ""
    tokens: tuple[int, ...] | None = ()
    pieces: tuple[str, ...] | None = ()


class Dropped(Record):
    """Text or a reset that never reached the model."""

    kind: Literal["dropped"] = "dropped"
    request_id: int
    frame: int
    t_ns: int
    reset: bool
    text: str
    reason: DropReason


class Step(Record):
    """One step of the model: the oracle token it consumed, the text token it produced (None: not yet)."""

    kind: Literal["step"] = "step"
    frame: int
    oracle: int
    text: int | None = None
    piece: str = ""


class Summary(Record):
    """Last row: counts for whoever reads the file by eye; `rebuild.summarise` gives the same."""

    kind: Literal["summary"] = "summary"
    requests: int
    completed: int
    cancelled: int
    failed: int
    chunks_dropped: int
    resets_dropped: int
    tokens_injected: int | None
    tokens_consumed: int | None
    tokens_late: int | None
    starved_frames: int | None
    longest_staleness_frames: int | None


Row = Annotated[
    Header | Messages | HeardRow | Request | Chunk | RequestEnd | Injection | Dropped | Step | Summary,
    Field(discriminator="kind"),
]
_ROW: TypeAdapter[Row] = TypeAdapter(Row)


@dataclass(slots=True)
class OracleLog:
    """A whole log, sorted into its kinds, each in order."""

    header: Header = field(default_factory=Header)
    messages: dict[str, tuple[Message, ...]] = field(default_factory=dict)
    heard: list[HeardRow] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    chunks: list[Chunk] = field(default_factory=list)
    ends: dict[int, RequestEnd] = field(default_factory=dict)
    injections: list[Injection] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    summary: Summary | None = None

    def add(self, row: Row) -> None:
        match row:
            case Header():
                self.header = row
            case Messages():
                self.messages[row.sha256] = tuple(Message(r, c) for r, c in row.messages)  # type: ignore[arg-type]
            case HeardRow():
                self.heard.append(row)
            case Request():
                self.requests.append(row)
            case Chunk():
                self.chunks.append(row)
            case RequestEnd():
                self.ends[row.request_id] = row
            case Injection():
                self.injections.append(row)
            case Dropped():
                self.dropped.append(row)
            case Step():
                self.steps.append(row)
            case Summary():
                self.summary = row

    def answer(self, request_id: int) -> str:
        """All text of a request as it came from the back-end."""
        return "".join(chunk.text for chunk in self.chunks if chunk.request_id == request_id)


class LogWriter:
    """Writes the log row by row; the file takes its name only in `close`."""

    def __init__(self, folder: Path, header: Header) -> None:
        self.log = OracleLog()
        self._path = folder / ORACLE_LOG
        self._part = self._path.with_name(ORACLE_LOG + ".part")
        folder.mkdir(parents=True, exist_ok=True)
        self._file = self._part.open("w", encoding="utf-8")
        self._stored: set[str] = set()
        self.write(header)

    def write(self, row: Row) -> None:
        self.log.add(row)
        self._file.write(row.model_dump_json() + "\n")

    def store_messages(self, sha256: str, messages: Iterable[Message]) -> None:
        """Store a request's messages unless they are there already."""
        if sha256 not in self._stored:
            self._stored.add(sha256)
            self.write(Messages(sha256=sha256, messages=tuple((m.role, m.content) for m in messages)))

    def close(self) -> None:
        """End the file. May be called twice."""
        if not self._file.closed:
            self._file.close()
            self._part.replace(self._path)


def read(path: Path) -> OracleLog:
    """Read a log: the file itself or the session's folder that holds it.

    Raises:
        BadRun: missing, not whole, with rows or a schema version this kamebench does not know.
    """
    path = path / ORACLE_LOG if path.is_dir() else path
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise BadRun(
            f"{path}: no injection log ({error.strerror}). Only KAME sessions have one; run again."
        ) from None
    log = OracleLog()
    for number, line in enumerate(lines, start=1):
        try:
            raw = json.loads(line)
            version = raw.get("schema_version", LOG_SCHEMA_VERSION) if isinstance(raw, dict) else None
            if version != LOG_SCHEMA_VERSION:
                raise BadRun(
                    f"{path}: has schema version {version}, this kamebench reads {LOG_SCHEMA_VERSION}. "
                    "Use the kamebench that wrote it, or run again."
                )
            log.add(_ROW.validate_python(raw))
        except (json.JSONDecodeError, ValidationError) as error:
            reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
            raise BadRun(f"{path}, line {number}: {reason}. Restore the file or run again.") from None
    return log

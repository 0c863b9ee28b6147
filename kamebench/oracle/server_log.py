"""The injection log of a released KAME server, from the text files its --log-dir leaves behind.

Each file holds `milliseconds: text` a line (epoch time): `llm_stream_words` the answers, one line a request
stamped with its start, `[CANCELLED]` or `[ERROR]` before the text where it did not end; `oracle_stream` what
was applied to the model, `[RESET]` or a chunk; `user_words` final and `asr_partial` interim recognition.

What these files do not hold stays None: why a request was made, its messages, and, unless the server's
tokenizer is given, tokens. White space around chunks is lost there, so chunks are joined by one space. Frames
come from the server's clock and are right to about a frame, on a machine whose clock agrees with this one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kamebench.clock import NS_PER_MS
from kamebench.oracle import rebuild
from kamebench.oracle.log import (
    Chunk,
    Header,
    HeardRow,
    Injection,
    LogWriter,
    OracleLog,
    Request,
    RequestEnd,
    RequestOutcome,
    Row,
    Step,
)
from kamebench.oracle.loop import Tokenizer

FRAME_MS = 80
FILES = ("llm_stream_words", "oracle_stream", "user_words", "moshi_words", "asr_partial")
_LINE = re.compile(r"^(\d{12,}): (.*)$")
_MARKS: dict[str, RequestOutcome] = {"[CANCELLED] ": "cancelled", "[ERROR] ": "failed"}


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a file; its text may run over several lines."""

    epoch_ms: int
    text: str


@dataclass(frozen=True, slots=True)
class ServerRequest:
    """One line of `llm_stream_words`."""

    request_id: int
    epoch_ms: int
    outcome: RequestOutcome
    words: str


@dataclass(frozen=True, slots=True)
class SessionSpan:
    """The session on the server's clock: epoch milliseconds at stream time 0, and how many frames it took."""

    start_epoch_ms: int
    n_frames: int


def read_entries(path: Path) -> list[Entry]:
    """The entries of one file, in order; none where the server did not write it."""
    if not path.exists():
        return []
    found: list[Entry] = []
    for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        match = _LINE.match(line)
        if match:
            found.append(Entry(int(match[1]), match[2]))
        elif found and line:
            found[-1] = Entry(found[-1].epoch_ms, f"{found[-1].text}\n{line}")
    return found


def read_folder(folder: Path, since_epoch_ms: int = 0) -> dict[str, list[Entry]]:
    """All files of a --log-dir, by name without ending; what an earlier session left behind is skipped."""
    return {
        name: [entry for entry in read_entries(folder / f"{name}.txt") if entry.epoch_ms >= since_epoch_ms]
        for name in FILES
    }


def convert(
    files: dict[str, list[Entry]],
    span: SessionSpan,
    writer: LogWriter,
    tokenizer: Tokenizer | None = None,
) -> OracleLog:
    """Write the injection log of a session that ran on a server."""
    rows: list[tuple[int, Row]] = []
    requests = _requests(files["llm_stream_words"])
    rows += _heard(files["user_words"], span, final=True)
    rows += _heard(files["asr_partial"], span, final=False)
    injections = _injections(files["oracle_stream"], requests, span, tokenizer)
    rows += injections
    rows += _request_rows(requests, files, span, [row for _, row in injections])
    for _, row in sorted(rows, key=lambda item: item[0]):
        writer.write(row)
    consumed = rebuild.rebuild_stream(writer.log, span.n_frames)
    for frame, token in enumerate(consumed or ()):
        writer.write(Step(frame=frame, oracle=token))
    writer.write(rebuild.summarise(writer.log))
    writer.close()
    return writer.log


def header(tokenizer: Tokenizer | None, n_words: int | None, settings: dict[str, object]) -> Header:
    """The log's header: with the server's tokenizer (and its vocabulary's size) tokens can be rebuilt."""
    known = tokenizer is not None
    return Header(
        source="kame-server",
        pad_id=3 if known else None,
        initial_id=n_words if known else None,
        settings={**settings, "frames": "from the server's clock"},
    )


def _at(epoch_ms: int, span: SessionSpan) -> tuple[int, int]:
    """(frame of the step that came next, stream ns) of a moment; the session's ends bound it."""
    since = max(0, epoch_ms - span.start_epoch_ms)
    return min(-(-since // FRAME_MS), span.n_frames), since * NS_PER_MS


def _requests(entries: Iterable[Entry]) -> list[ServerRequest]:
    """Requests in the order of their start (the file is in the order of their end)."""
    found: list[ServerRequest] = []
    for number, entry in enumerate(sorted(entries, key=lambda e: e.epoch_ms), start=1):
        text, outcome = entry.text, "completed"
        for mark, marked in _MARKS.items():
            if text.startswith(mark):
                text, outcome = text.removeprefix(mark), marked
        found.append(ServerRequest(number, entry.epoch_ms, outcome, text))
    return found


def _heard(entries: Iterable[Entry], span: SessionSpan, *, final: bool) -> list[tuple[int, Row]]:
    rows: list[tuple[int, Row]] = []
    for entry in entries:
        frame, t_ns = _at(entry.epoch_ms, span)
        rows.append((entry.epoch_ms, HeardRow(frame=frame, t_ns=t_ns, text=entry.text, final=final)))
    return rows


def _injections(
    entries: Sequence[Entry],
    requests: Sequence[ServerRequest],
    span: SessionSpan,
    tokenizer: Tokenizer | None,
) -> list[tuple[int, Row]]:
    rows: list[tuple[int, Row]] = []
    request_id, first = 0, True
    for at, entry in enumerate(entries):
        frame, t_ns = _at(entry.epoch_ms, span)
        reset = entry.text == "[RESET]"
        if reset:
            following = entries[at + 1].text if at + 1 < len(entries) else ""
            request_id, first = _whose(entry.epoch_ms, following, requests), True
            row = Injection(request_id=request_id, frame=frame, t_ns=t_ns, reset=True)
        else:
            tokens = tuple(tokenizer.encode(entry.text)) if tokenizer else None
            row = Injection(
                request_id=request_id,
                frame=frame,
                t_ns=t_ns,
                reset=False,
                text=entry.text if first else " " + entry.text,
                tokens=tokens,
                pieces=tuple(tokenizer.id_to_piece(t) for t in tokens or ()) if tokenizer else None,
            )
            first = False
        rows.append((entry.epoch_ms, row))
    return rows


def _whose(epoch_ms: int, first_chunk: str, requests: Sequence[ServerRequest]) -> int:
    """The request a reset belongs to: the latest one before it that begins with the chunk that follows."""
    before = [request for request in requests if request.epoch_ms <= epoch_ms]
    fitting = [request for request in before if request.words.startswith(first_chunk)]
    chosen = (fitting or before)[-1:]
    return chosen[0].request_id if chosen else 0


def _request_rows(
    requests: Sequence[ServerRequest],
    files: dict[str, list[Entry]],
    span: SessionSpan,
    injections: Sequence[Row],
) -> list[tuple[int, Row]]:
    """Requests with the user's text as known at their start, their answer, and their end.

    The files do not say when a request ended: taken as its last chunk's step where it completed, as the next
    request's start where it was cancelled.
    """
    rows: list[tuple[int, Row]] = []
    for at, request in enumerate(requests):
        frame, t_ns = _at(request.epoch_ms, span)
        finals = [e for e in files["user_words"] if e.epoch_ms <= request.epoch_ms]
        since = finals[-1].epoch_ms if finals else 0
        partials = [e for e in files["asr_partial"] if since < e.epoch_ms <= request.epoch_ms]
        committed = " ".join(e.text for e in finals)
        pending = partials[-1].text if partials else ""
        row = Request(
            request_id=request.request_id,
            frame=frame,
            t_ns=t_ns,
            reason=None,
            trigger=pending or (finals[-1].text if finals else ""),
            committed=committed,
            pending=pending,
            committed_words=len(committed.split()),
            pending_words=len(pending.split()),
            messages_sha256=None,
            temperature=None,
        )
        rows.append((request.epoch_ms, row))
        own = [i for i in injections if isinstance(i, Injection) and i.request_id == request.request_id]
        end_ms = request.epoch_ms if not own else span.start_epoch_ms + own[-1].t_ns // NS_PER_MS
        if request.outcome == "cancelled" and at + 1 < len(requests):
            end_ms = max(end_ms, requests[at + 1].epoch_ms)
        end_frame, end_ns = _at(end_ms, span)
        chunk_ns = own[0].t_ns if own else t_ns
        chunk_frame = own[0].frame if own else frame
        rows.append(
            (
                end_ms,
                Chunk(request_id=request.request_id, frame=chunk_frame, t_ns=chunk_ns, text=request.words),
            )
        )
        reason: Literal["superseded", "error in the server", ""] = ""
        if request.outcome != "completed":
            reason = "superseded" if request.outcome == "cancelled" else "error in the server"
        rows.append(
            (
                end_ms,
                RequestEnd(
                    request_id=request.request_id,
                    frame=end_frame,
                    t_ns=end_ns,
                    outcome=request.outcome,
                    reason=reason,
                ),
            )
        )
    return rows

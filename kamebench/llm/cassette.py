"""Cassettes: a back-end's answers recorded with their times, and played back by content.

A cassette is a folder with one JSON file a request: the request (model, messages, temperature, limit; never
a key, an address or a header), its hash, and what came with nanoseconds since the request. The same request
made again is recorded again: played back, the n-th one gets the n-th recording and any further one the last.

What ended how is part of it:

- `completed`: the end comes at its time.
- `failed`: the same fault is raised at its time.
- `cancelled`: the caller had enough; what would have come is not known. Played back, the pieces come at their
  times and then nothing, as the caller is expected to cancel again at about the same time; if it waits
  `GRACE_S` longer than then, that is a fault.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
from collections import defaultdict
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from kamebench.clock import NS_PER_S, Clock
from kamebench.errors import BackendFault, BadConfig, BadRun, Party
from kamebench.llm.base import (
    Backend,
    ChatRequest,
    FinishReason,
    Role,
    StreamEnd,
    TextChunk,
    Usage,
    close_stream,
)
from kamebench.llm.faults import shortened
from kamebench.llm.setup import BackendOptions, BackendSetup, read_options
from kamebench.records import SCHEMA_VERSION, Record
from kamebench.store import read_record, write_record

GRACE_S = 10.0


class RecordedMessage(Record):
    role: Role
    content: str


class RecordedRequest(Record):
    """All that decides an answer. Its hash names the recording."""

    model: str
    messages: tuple[RecordedMessage, ...]
    temperature: float
    max_tokens: int | None

    @classmethod
    def of(cls, model: str, request: ChatRequest) -> RecordedRequest:
        return cls(
            model=model,
            messages=tuple(RecordedMessage(role=m.role, content=m.content) for m in request.messages),
            temperature=float(request.temperature),
            max_tokens=request.max_tokens,
        )

    @property
    def sha256(self) -> str:
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def text(self) -> str:
        return "\n".join(f"{message.role}: {message.content}" for message in self.messages)


class RecordedChunk(Record):
    t_ns: int = Field(ge=0, description="since the request")
    text: str


class RecordedFault(Record):
    kind: str
    message: str
    retryable: bool
    party: Party
    retry_after_s: float | None = None


class Recording(Record):
    """One request and what came of it."""

    schema_version: int = SCHEMA_VERSION
    family: str
    request_sha256: str
    request: RecordedRequest
    occurrence: int = Field(ge=0, description="how often the same request had been made before")
    chunks: tuple[RecordedChunk, ...]
    outcome: Literal["completed", "failed", "cancelled"]
    ended_ns: int = Field(ge=0, description="since the request")
    finish_reason: FinishReason | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    fault: RecordedFault | None = None


class RecordingBackend(Backend):
    """A back-end that passes everything on and writes it down."""

    def __init__(self, inner: Backend, folder: Path, clock: Clock) -> None:
        self._inner, self._folder, self._clock = inner, folder, clock
        self.name, self.family, self.billed = inner.name, inner.family, inner.billed
        self._made: dict[str, int] = defaultdict(int)
        for recordings in _read(folder).values():
            for recording in recordings:  # a run that is taken up again goes on where it stopped
                self._made[recording.request_sha256] = recording.occurrence + 1

    async def start(self) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BadConfig(
                f"{self._folder}: answers cannot be recorded there ({error.strerror}). Name another folder."
            ) from None
        if not os.access(self._folder, os.W_OK):
            raise BadConfig(f"{self._folder}: answers cannot be recorded there (not writable).")
        await self._inner.start()

    async def stream(self, request: ChatRequest) -> AsyncIterator[TextChunk | StreamEnd]:
        asked = RecordedRequest.of(self.name, request)
        occurrence = self._made[asked.sha256]
        self._made[asked.sha256] += 1
        began_ns = self._clock.now_ns()
        chunks: list[RecordedChunk] = []
        end: StreamEnd | None = None
        fault: BackendFault | None = None
        stream = self._inner.stream(request)
        try:
            async for item in stream:
                if isinstance(item, StreamEnd):
                    end = item
                    break
                chunks.append(RecordedChunk(t_ns=self._clock.now_ns() - began_ns, text=item.text))
                yield item
        except BackendFault as error:
            fault = error
            raise
        finally:
            recording = Recording(
                family=self.family,
                request_sha256=asked.sha256,
                request=asked,
                occurrence=occurrence,
                chunks=tuple(chunks),
                outcome="completed" if end else "failed" if fault else "cancelled",
                ended_ns=self._clock.now_ns() - began_ns,
                finish_reason=end.finish_reason if end else None,
                input_tokens=end.usage.input_tokens if end else None,
                output_tokens=end.usage.output_tokens if end else None,
                fault=_recorded(fault) if fault else None,
            )
            write_record(self._folder / f"{asked.sha256[:24]}-{occurrence:04d}.json", recording)
            await close_stream(stream)
        if end is not None:
            yield end

    async def aclose(self) -> None:
        await self._inner.aclose()

    def describe(self) -> dict[str, Any]:
        return {**self._inner.describe(), "recorded": True}


class ReplayBackend(Backend):
    """Plays a cassette. Its name and family are those of the model that was recorded."""

    def __init__(self, folder: Path, clock: Clock, model: str | None = None) -> None:
        everything = _read(folder)
        models = sorted({recordings[0].request.model for recordings in everything.values()})
        if not models:
            raise BadConfig(f"replay:{folder}: holds no recording. Make one with --record {folder}.")
        if model is None and len(models) > 1:
            raise BadConfig(
                f"replay:{folder}: holds recordings of {', '.join(models)}. Say which: replay:MODEL@{folder}."
            )
        self.name = model or models[0]
        self._folder, self._clock = folder, clock
        self._recordings = {k: r for k, r in everything.items() if r[0].request.model == self.name}
        if not self._recordings:
            raise BadConfig(
                f"replay:{folder}: holds no recording of '{self.name}', only of {', '.join(models)}."
            )
        self.family = next(iter(self._recordings.values()))[0].family
        self._played: dict[str, int] = defaultdict(int)

    async def stream(self, request: ChatRequest) -> AsyncIterator[TextChunk | StreamEnd]:
        began_ns = self._clock.now_ns()
        recording = self._find(request)
        for chunk in recording.chunks:
            await self._clock.sleep_until_ns(began_ns + chunk.t_ns)
            yield TextChunk(chunk.text)
        await self._clock.sleep_until_ns(began_ns + recording.ended_ns)
        if recording.fault is not None:
            raise _fault(recording.fault)
        if recording.outcome == "cancelled":
            await self._clock.sleep_until_ns(began_ns + recording.ended_ns + round(GRACE_S * NS_PER_S))
            raise BackendFault(
                f"replay: when recorded, this request was cancelled after {recording.ended_ns / 1e9:.2f} s, "
                "and now more is waited for. Record again with what runs now.",
                kind="cassette_end",
                party="kamebench",
            )
        yield StreamEnd(
            recording.finish_reason or "unknown", Usage(recording.input_tokens, recording.output_tokens)
        )

    def describe(self) -> dict[str, Any]:
        return {
            **super().describe(),
            "replayed": True,
            "recordings": sum(len(recordings) for recordings in self._recordings.values()),
            "cassette_sha256": hashlib.sha256("".join(sorted(self._recordings)).encode()).hexdigest(),
        }

    def _find(self, request: ChatRequest) -> Recording:
        asked = RecordedRequest.of(self.name, request)
        recordings = self._recordings.get(asked.sha256)
        if recordings is None:
            raise BackendFault(self._miss(asked), kind="cassette_miss", party="kamebench")
        place = min(self._played[asked.sha256], len(recordings) - 1)
        self._played[asked.sha256] += 1
        return recordings[place]

    def _miss(self, asked: RecordedRequest) -> str:
        """What was not found, and how the nearest recorded request differs."""
        matcher = difflib.SequenceMatcher(autojunk=False)
        matcher.set_seq2(asked.text.split())

        def alike(recording: Recording) -> float:
            matcher.set_seq1(recording.request.text.split())
            return matcher.ratio()

        nearest = max((recordings[0] for recordings in self._recordings.values()), key=alike)
        return (
            f"replay:{self._folder} has no recording of a request to {self.name}. Nearest "
            f"({alike(nearest):.0%} alike): {nearest.request_sha256[:12]}; "
            f"{_difference(asked, nearest.request)}. Record again with what runs now."
        )


def _difference(asked: RecordedRequest, recorded: RecordedRequest) -> str:
    for name in ("temperature", "max_tokens"):
        now, then = getattr(asked, name), getattr(recorded, name)
        if asked.messages == recorded.messages and now != then:
            return f"{name} was {then}, is {now}"
    then_words, now_words = recorded.text.split(), asked.text.split()
    pieces: list[str] = []
    matcher = difflib.SequenceMatcher(a=then_words, b=now_words, autojunk=False)
    for what, a0, a1, b0, b1 in matcher.get_opcodes():
        if what != "equal":
            pieces.append(f"'{' '.join(then_words[a0:a1])}' is now '{' '.join(now_words[b0:b1])}'")
    return shortened("; ".join(pieces) or "they differ in white space only", 400)


def _recorded(fault: BackendFault) -> RecordedFault:
    return RecordedFault(
        kind=fault.kind,
        message=str(fault),
        retryable=fault.retryable,
        party=fault.party,
        retry_after_s=fault.retry_after_s,
    )


def _fault(recorded: RecordedFault) -> BackendFault:
    fault = BackendFault(
        recorded.message, kind=recorded.kind, retryable=recorded.retryable, party=recorded.party
    )
    fault.retry_after_s = recorded.retry_after_s
    return fault


def _read(folder: Path) -> dict[str, list[Recording]]:
    """Request hash -> its recordings in the order they were made.

    Raises:
        BadConfig: a file is not a recording, or was edited.
    """
    found: dict[str, list[Recording]] = defaultdict(list)
    for path in sorted(folder.glob("*.json")):
        try:
            recording = read_record(path, Recording)
        except BadRun as error:
            raise BadConfig(f"cassette {error}") from None
        if recording.request.sha256 != recording.request_sha256:
            raise BadConfig(f"cassette {path}: the request does not have the hash it is filed under.")
        found[recording.request_sha256].append(recording)
    for recordings in found.values():
        recordings.sort(key=lambda recording: recording.occurrence)
    return dict(found)


def create(setup: BackendSetup) -> Backend:
    """`replay:FOLDER`, or `replay:MODEL@FOLDER` where several models were recorded into one.

    Raises:
        BadConfig: there is no such folder, nothing in it, or something else.
    """
    read_options(BackendOptions, setup, "replay")
    name, model = setup.model, None
    if not Path(name).is_dir() and "@" in name:
        model, _, name = name.partition("@")
    if not name or not Path(name).is_dir():
        raise BadConfig(f"replay:{setup.model}: there is no such folder. Record one with --record.")
    return ReplayBackend(Path(name), setup.clock, model)

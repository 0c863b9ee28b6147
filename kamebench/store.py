"""Runs on disk: results/<system>/<task>@<version>/<run id>/.

    manifest.json              written first (`running`) and last (`complete`, with every file's hash)
    sessions/<question id>/    one conversation: audio.flac (left user, right system), events.jsonl,
                               pacing.json (ms late, every frame), more logs of the system, and
                               session.json, written last
    measures.json              derived: `kamebench measure RUN`
    transcripts.json           derived: part of a run
    scores/<judge>.<what>.json derived: `kamebench score RUN`

Every file is written beside its name and renamed, so a name stands for a whole file.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from filelock import FileLock, Timeout
from pydantic import ValidationError

from kamebench import assets, records
from kamebench.errors import BadRun, UserError
from kamebench.events import Event, from_json
from kamebench.records import (
    FaultInfo,
    Manifest,
    MeasureFile,
    Onset,
    Record,
    SessionRecord,
    TranscriptFile,
    TurnMeasure,
    TurnRecord,
    VerdictFile,
)

if TYPE_CHECKING:
    import pandas as pd

R = TypeVar("R", bound=Record)

MANIFEST = "manifest.json"
SESSION = "session.json"
AUDIO = "audio.flac"
EVENTS = "events.jsonl"
PACING = "pacing.json"
MEASURES = "measures.json"
TRANSCRIPTS = "transcripts.json"


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_text(path: Path, text: str) -> None:
    """Write a file at once or not at all, safe with several processes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(part).chmod(0o644)
        Path(part).replace(path)
    except BaseException:
        Path(part).unlink(missing_ok=True)
        raise


def write_record(path: Path, record: Record) -> None:
    write_text(path, record.model_dump_json(indent=1) + "\n")


def read_record(path: Path, cls: type[R]) -> R:
    """Read one record.

    Raises:
        BadRun: missing, not JSON, written by another schema version, or with fields that do not belong.
    """
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadRun(
            f"{path}: no such file. The run is not whole; finish it with 'kamebench run --resume'."
        ) from None
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise BadRun(f"{path}: cannot be read ({error}). Restore the file or run again.") from None
    version = raw.get("schema_version", records.SCHEMA_VERSION) if isinstance(raw, dict) else None
    if version != records.SCHEMA_VERSION:
        raise BadRun(
            f"{path}: has schema version {version}, this kamebench reads {records.SCHEMA_VERSION}. "
            "Use the kamebench that wrote it, or run again."
        )
    try:
        return cls.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise BadRun(f"{path}: {where}: {first['msg']}. Restore the file or run again.") from None


@dataclass(frozen=True)
class Run:
    """A stored run. Reading is lazy; nothing here changes a file."""

    path: Path

    @cached_property
    def manifest(self) -> Manifest:
        return read_record(self.path / MANIFEST, Manifest)

    @cached_property
    def sessions(self) -> dict[str, SessionRecord]:
        """Finished sessions by question id, in the manifest's order."""
        found: dict[str, SessionRecord] = {}
        for question in self.manifest.questions:
            path = self.session_folder(question) / SESSION
            if path.exists():
                found[question] = read_record(path, SessionRecord)
        return found

    def session_folder(self, question_id: str) -> Path:
        return self.path / "sessions" / question_id

    def events(self, question_id: str) -> Iterator[Event]:
        """The timeline of one session, in order."""
        path = self.session_folder(question_id) / EVENTS
        try:
            with path.open(encoding="utf-8") as file:
                for line in file:
                    yield from_json(json.loads(line))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise BadRun(f"{path}: cannot be read ({error}). Restore it, or make the run again.") from None

    @cached_property
    def measures(self) -> MeasureFile | None:
        path = self.path / MEASURES
        return read_record(path, MeasureFile) if path.exists() else None

    @cached_property
    def transcripts(self) -> TranscriptFile | None:
        path = self.path / TRANSCRIPTS
        return read_record(path, TranscriptFile) if path.exists() else None

    @cached_property
    def scores(self) -> dict[str, VerdictFile]:
        """Score files by name ("facts.spoken")."""
        files = (read_record(path, VerdictFile) for path in sorted((self.path / "scores").glob("*.json")))
        return {file.name: file for file in files}

    @cached_property
    def turns(self) -> list[TurnRecord]:
        """Every turn the run should hold, in order; what is absent is a `fault` or None with its reason."""
        measures = {(m.question_id, m.turn): m for m in (self.measures.turns if self.measures else ())}
        texts = {(t.question_id, t.turn): t for t in (self.transcripts.turns if self.transcripts else ())}
        verdicts: dict[tuple[str, int], dict[str, records.Verdict]] = {}
        for name, file in self.scores.items():
            for verdict in file.turns:
                verdicts.setdefault((verdict.question_id, verdict.turn), {})[name] = verdict
        rows: list[TurnRecord] = []
        for question in self.manifest.questions:
            session = self.sessions.get(question)
            if session is None:
                continue
            marks = {mark.turn: mark for mark in session.turns}
            for turn in range(1, session.n_turns_expected + 1):
                key = (question, turn)
                fault = fault_of_turn(session, turn)
                rows.append(
                    TurnRecord(
                        question_id=question,
                        category=session.category,
                        turn=turn,
                        mark=marks.get(turn),
                        fault=fault,
                        measure=measures.get(key) or _faulted(question, turn, marks.get(turn), fault),
                        transcript=texts.get(key),
                        verdicts=verdicts.get(key, {}),
                    )
                )
        return rows

    def table(self, score: str | None = None) -> pd.DataFrame:
        """One row a turn. Columns: question_id, category, turn, outcome, latency_ms, latency_frames,
        censored_at_ms, talk_over_share, backchannels, response_s, pacing_usable, flags, fault, score,
        score_status, text, user_wer, own_wer, words_per_minute. Absent values are NaN or None.

        Args:
            score: name of a score file; default the manifest's primary one.
        """
        import pandas as pd

        name = score or self.manifest.primary_score
        if score is not None and score not in self.scores:
            raise UserError(
                f"{self.path}: no score named '{score}'. It has: {', '.join(self.scores) or 'none'}."
            )
        rows: list[dict[str, Any]] = []
        for t in self.turns:
            onset, verdict, text = t.measure.onset, t.verdicts.get(name or ""), t.transcript
            rows.append(
                {
                    "question_id": t.question_id,
                    "category": t.category,
                    "turn": t.turn,
                    "outcome": onset.outcome,
                    "latency_ms": onset.latency_ms,
                    "latency_frames": onset.latency_frames,
                    "censored_at_ms": onset.censored_at_ms,
                    "talk_over_share": t.measure.talk_over_share,
                    "backchannels": onset.backchannels,
                    "response_s": t.measure.response_s,
                    "pacing_usable": t.measure.pacing_usable,
                    "flags": t.measure.flags,
                    "fault": t.fault.party if t.fault else None,
                    "score": verdict.score if verdict else None,
                    "score_status": verdict.status if verdict else None,
                    "text": text.text if text else None,
                    "user_wer": text.user_wer if text else None,
                    "own_wer": text.own_wer if text else None,
                    "words_per_minute": text.words_per_minute if text else None,
                }
            )
        frame = pd.DataFrame(rows)
        numeric = ["latency_ms", "latency_frames", "censored_at_ms", "talk_over_share", "response_s", "score"]
        numeric += ["user_wer", "own_wer", "words_per_minute"]
        if len(frame):
            frame[numeric] = frame[numeric].astype(float)
        return frame

    def check(self) -> None:
        """Refuse a run that is not whole or was edited.

        Raises:
            BadRun: naming the first file that is missing, extra or changed.
        """
        manifest = self.manifest
        if manifest.status != "complete":
            raise BadRun(
                f"{self.path}: the run is not complete (status '{manifest.status}'). "
                f"Finish it with: kamebench run --resume {self.path}"
            )
        if manifest.seal != seal_of(manifest):
            raise BadRun(
                f"{self.path}: {MANIFEST} was changed after the run. Restore it, or make the run again."
            )
        present = hashes_of(self.path)
        for name in sorted({*present, *manifest.files}):
            if present.get(name) != manifest.files.get(name):
                state = (
                    "is missing"
                    if name not in present
                    else (
                        "was added by hand"
                        if name not in manifest.files
                        else "was changed after the run (hash mismatch)"
                    )
                )
                raise BadRun(f"{self.path}: {name} {state}. {_mend(self.path, name)}")

    def check_sessions(self) -> None:
        """Refuse recordings that were changed after they were made, in a run that is not sealed yet.

        Raises:
            BadRun: naming the first file that differs from the hash in its session.json.
        """
        for question, session in self.sessions.items():
            folder = self.session_folder(question)
            for name, sha256 in session.files.items():
                if not (folder / name).is_file() or file_sha256(folder / name) != sha256:
                    raise BadRun(
                        f"{folder / name}: is not what was recorded (hash mismatch). Restore it, or remove "
                        f"{folder} and play the question again: kamebench run --resume {self.path}"
                    )


def _mend(run: Path, name: str) -> str:
    if name == MEASURES:
        return f"Restore it, or measure the run again: kamebench measure {run}"
    if name.startswith("scores/"):
        return f"Restore it, or score the run again: kamebench score {run}"
    return "Restore it, or make the run again."


def fault_of_turn(session: SessionRecord, turn: int) -> FaultInfo | None:
    """The fault that spoilt a turn: its own, or an earlier one (a fault in turn 1 voids turn 2)."""
    if session.fault is None or turn < (session.fault.turn or 1):
        return None
    return session.fault


def _faulted(question: str, turn: int, mark: records.TurnMark | None, fault: FaultInfo | None) -> TurnMeasure:
    reason = f"{fault.party}: {fault.kind}" if fault else "not measured yet"
    return TurnMeasure(
        question_id=question,
        turn=turn,
        onset=Onset(
            outcome="fault",
            user_start_sample=mark.user_start_sample if mark else 0,
            user_end_sample=mark.user_end_sample if mark else 0,
            reason=reason,
        ),
    )


def hashes_of(folder: Path) -> dict[str, str]:
    """Relative path -> sha256 of every file of a run but the manifest; unfinished `.part` files left out."""
    return {
        path.relative_to(folder).as_posix(): file_sha256(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != MANIFEST and path.suffix != ".part"
    }


def write_derived(folder: Path, name: str, record: Record) -> None:
    """Write a derived file of a run; of a complete one its hash in the manifest too, and no other.

    The other hashes stay as they are, so that deriving from a run that was edited does not make it whole.
    """
    with FileLock(_lock_of(folder, "manifest")):
        write_record(folder / name, record)
        manifest = read_record(folder / MANIFEST, Manifest)
        if manifest.status != "complete":
            return
        files = dict(sorted({**manifest.files, name: file_sha256(folder / name)}.items()))
        renewed = manifest.model_copy(update={"files": files})
        if manifest.seal == seal_of(manifest):
            _write_sealed(folder, renewed)
        else:  # edited by hand: it keeps the seal that does not fit
            write_record(folder / MANIFEST, renewed)


def seal(folder: Path, **changes: Any) -> Manifest:
    """Write the manifest anew with the present files' hashes (and other changed fields)."""
    manifest = read_record(folder / MANIFEST, Manifest)
    changed = manifest.model_copy(update={**changes, "files": hashes_of(folder)})
    return _write_sealed(folder, Manifest.model_validate(changed.model_dump()))


def seal_of(manifest: Manifest) -> str:
    """The seal that belongs to a manifest. It tells edits by hand; whoever wants to can make it anew."""
    # Fields at their defaults are left out, so that a field added later breaks no earlier seal.
    plain = manifest.model_dump(mode="json", exclude={"seal"}, exclude_defaults=True)
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def _write_sealed(folder: Path, manifest: Manifest) -> Manifest:
    sealed = manifest.model_copy(update={"seal": seal_of(manifest)})
    write_record(folder / MANIFEST, sealed)
    return sealed


def _lock_of(folder: Path, what: str) -> Path:
    name = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:20]
    place = assets.cache_folder() / "locks" / f"{name}.{what}.lock"
    place.parent.mkdir(parents=True, exist_ok=True)
    return place


@contextmanager
def only_writer(folder: Path) -> Generator[None]:
    """Keep other processes with the same cache folder from playing the same run.

    Raises:
        BadRun: one does.
    """
    try:
        with FileLock(_lock_of(folder, "run"), timeout=0):
            yield
    except Timeout:
        raise BadRun(
            f"{folder}: another kamebench is working on this run. Wait until it has ended, or end it."
        ) from None


def find_runs(results: Path) -> list[Run]:
    """All runs under a results folder, oldest first; one whose manifest cannot be read stands before them."""
    return sorted((Run(path.parent) for path in results.glob("*/*/*/manifest.json")), key=_age)


def _age(run: Run) -> tuple[str, str]:
    try:
        return run.manifest.started_at, run.path.name
    except BadRun:
        return "", run.path.name


def open_run(path: Path) -> Run:
    """The run in a folder.

    Raises:
        BadRun: the folder holds no manifest.
    """
    if not (path / MANIFEST).is_file():
        raise BadRun(f"{path}: holds no {MANIFEST}. Give the folder of one run (see 'kamebench list runs').")
    return Run(path)

"""What a comparison needs to know of a run: identity, settings and raw values a turn. No audio, no text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pydantic import Field

from kamebench.errors import BadRun, UserError
from kamebench.records import SCHEMA_VERSION, Outcome, Record, Sha256
from kamebench.store import Run

if TYPE_CHECKING:
    import pandas as pd


class TurnValue(Record):
    """One turn's raw values; the names are those of `Run.table()`."""

    question_id: str
    category: str
    turn: int = Field(ge=1)
    outcome: Outcome
    latency_ms: float | None
    censored_at_ms: float | None
    talk_over_share: float | None
    backchannels: int = Field(ge=0)
    response_s: float | None
    pacing_usable: bool
    fault: str | None
    score: float | None
    score_status: str | None


class Snapshot(Record):
    """A run as comparisons and gates see it; taken from a run, or read from a baseline."""

    schema_version: int = SCHEMA_VERSION
    kamebench_version: str
    run_id: str
    label: str
    system: str
    backend: str | None
    started_at: str
    git_commit: str | None
    task: str
    task_version: str
    task_sha256: Sha256
    pace: str
    questions: tuple[str, ...]
    audio: dict[str, Sha256] = Field(description="'question/turn' -> hash of the user's audio")
    score: str | None = Field(description="name of the score file the scores are from")
    judge: dict[str, Any] = Field(description="the judge's settings, references among them")
    detector: dict[str, Any] = Field(description="every setting of the measures")
    hardware: dict[str, Any]
    files: dict[str, Sha256] = Field(description="hashes of the run's derived files")
    turns: tuple[TurnValue, ...]

    @property
    def title(self) -> str:
        return f"{self.label} {self.run_id}"

    def table(self) -> pd.DataFrame:
        """One row a turn, with the columns of TurnValue; absent values are NaN or None."""
        import pandas as pd

        frame = pd.DataFrame([turn.model_dump() for turn in self.turns], columns=list(TurnValue.model_fields))
        numeric = ["latency_ms", "censored_at_ms", "talk_over_share", "response_s", "score"]
        frame[numeric] = frame[numeric].astype(float)
        return frame


def take(run: Run, score: str | None = None) -> Snapshot:
    """The snapshot of a stored run, after its files were checked.

    Args:
        score: name of a score file; default the run's primary one.

    Raises:
        BadRun: not complete, edited, another schema, not measured, or without sessions.
        UserError: no score of that name.
    """
    run.check()
    manifest = run.manifest
    if run.measures is None:
        raise BadRun(f"{run.path}: was never measured. Run: kamebench measure {run.path}")
    absent = [question for question in manifest.questions if question not in run.sessions]
    if absent:
        raise BadRun(
            f"{run.path}: holds no session of {len(absent)} of its {len(manifest.questions)} questions "
            f"({_some(absent)}). Finish it with: kamebench run --resume {run.path}"
        )
    name = score or manifest.primary_score
    if name is not None and name not in run.scores:
        raise UserError(f"{run.path}: no score named '{name}'. It has: {', '.join(run.scores) or 'none'}.")
    table = run.table(name)
    rows = table[list(TurnValue.model_fields)].astype(object)
    plain = rows.where(rows.notna(), None).to_dict("records")
    if len(plain) != manifest.n_turns:
        raise BadRun(
            f"{run.path}: holds {len(plain)} turns, its manifest says {manifest.n_turns}. "
            f"Finish it with: kamebench run --resume {run.path}"
        )
    return Snapshot(
        kamebench_version=manifest.kamebench_version,
        run_id=manifest.run_id,
        label=manifest.label,
        system=manifest.system,
        backend=manifest.backend,
        started_at=manifest.started_at,
        git_commit=manifest.git_commit,
        task=manifest.task,
        task_version=manifest.task_version,
        task_sha256=manifest.task_sha256,
        pace=manifest.pace,
        questions=manifest.questions,
        audio=manifest.audio,
        score=name,
        judge=run.scores[name].settings if name else {},
        detector=run.measures.settings,
        hardware=manifest.hardware,
        files={path: sha for path, sha in manifest.files.items() if not path.startswith("sessions/")},
        turns=tuple(TurnValue.model_validate(row) for row in plain),
    )


def joined(snapshots: Sequence[Snapshot]) -> pd.DataFrame:
    """The tables of one run or of several repeats, below each other; column `repeat` counts them."""
    import pandas as pd

    return pd.concat(
        [snapshot.table().assign(repeat=i) for i, snapshot in enumerate(snapshots)], ignore_index=True
    )


def _some(names: list[str], limit: int = 5) -> str:
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more

"""Where a KAME run loses its score: the same turns judged at every point between knowledge and ear.

    backend-text           the back-end asked with the full question as text
    oracle-last            the last oracle injected in the turn
    oracle-onset-full      the whole answer of the request in force at the onset
    oracle-onset-injected  what of it had been injected by the onset
    oracle-onset           what of it the model had consumed by the onset
    text-stream            the model's own text
    spoken                 the transcript of its speech

Beside them `oracle-completed`, the last oracle that the back-end had finished. The back-end is asked under
the session's own instructions, history and temperature, taken from the injection log; its answers are stored
with the run, in `ablations.json`, so that they can be judged again by any judge.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any, Literal

from pydantic import Field

from kamebench import store
from kamebench.errors import BadRun, UserError, WorldFault
from kamebench.judge.answers import Answer, Key, given, missing
from kamebench.judge.asking import Asker
from kamebench.judge.base import Judge, References
from kamebench.llm.base import ChatRequest, Message, TurnContext
from kamebench.oracle import log as oracle_log
from kamebench.oracle.log import OracleLog
from kamebench.oracle.prompt import Conversation
from kamebench.oracle.rebuild import TurnWindow
from kamebench.progress import Progress
from kamebench.records import SCHEMA_VERSION, Aggregate, Record, TurnRecord, What
from kamebench.stats.aggregates import OVERALL, score_aggregates
from kamebench.stats.paired import paired_difference
from kamebench.store import Run
from kamebench.tasks import Question, Task

ABLATIONS = "ablations.json"

LADDER: tuple[What, ...] = (
    "backend-text",
    "oracle-last",
    "oracle-onset-full",
    "oracle-onset-injected",
    "oracle-onset",
    "text-stream",
    "spoken",
)
BESIDE: tuple[What, ...] = ("oracle-completed",)

STEPS: tuple[tuple[What, What, str], ...] = (
    ("backend-text", "oracle-last", "asking about partial transcripts, as heard"),
    ("oracle-last", "oracle-onset-full", "answering before the last oracle"),
    ("oracle-onset-full", "oracle-onset-injected", "the request still running at the onset"),
    ("oracle-onset-injected", "oracle-onset", "one token a frame"),
    ("oracle-last", "text-stream", "uptake by the front-end"),
    ("text-stream", "spoken", "speech and recognition"),
    ("backend-text", "spoken", "all together"),
)
"""(from, to, what lies between). The oracle at the onset says what was there to begin with; the model goes on
reading while it speaks, so its uptake is counted from the last oracle."""


class BackendAnswer(Record):
    """What the back-end said to the full question as text; None with the reason where it did not."""

    question_id: str
    turn: int
    text: str | None
    reason: str = ""
    messages: tuple[tuple[str, str], ...] = ()
    temperature: float | None = None
    max_tokens: int | None = None
    finish_reason: str | None = None


class Step(Record):
    """A paired difference between two points: `to` minus `start`, in points; see `stats.paired`."""

    start: What
    to: What
    between: str
    difference: float | None
    low: float | None
    high: float | None
    n: int
    n_questions: int
    n_missing: int
    reason: str = ""


class Ladder(Record):
    """One judge's scores at every point, and the differences between them."""

    judge: str
    comparable_with_llm_judge: bool
    scores: dict[str, tuple[Aggregate, ...]] = Field(description="what -> overall and by category")
    steps: tuple[Step, ...]


class AblationFile(Record):
    """`ablations.json`."""

    schema_version: int = SCHEMA_VERSION
    backend: str
    instructions: Literal["of the session"] = "of the session"
    answers: tuple[BackendAnswer, ...]
    ladders: dict[str, Ladder] = Field(default_factory=dict)


def has_oracle(run: Run) -> bool:
    """Whether the run holds injection logs, so that there is something to take apart."""
    return any((run.session_folder(q) / oracle_log.ORACLE_LOG).is_file() for q in run.sessions)


async def ablate(
    run: Run,
    judge: Judge,
    *,
    task: Task,
    backend: Asker,
    references: References | None = None,
    repeats: int = 1,
    progress: Progress | None = None,
) -> Ladder:
    """Judge a KAME run at every point and write `ablations.json`; the back-end is asked where it was not yet.

    Raises:
        UserError: the run has no injection log; see also `score_run`.
    """
    from kamebench.judge.score import score_name, score_run

    if not has_oracle(run):
        raise UserError(f"{run.path}: has no injection log. Only KAME systems can be taken apart this way.")
    await ask_backend(run, task, backend, progress)
    for what in (*LADDER, *BESIDE):
        await score_run(
            run, judge, task=task, what=what, references=references, repeats=repeats, progress=progress
        )
    fresh = Run(run.path)
    ladder = _ladder(fresh, score_name(judge, references, repeats))
    file = read(run)
    assert file is not None
    _write(run, file.model_copy(update={"ladders": {**file.ladders, ladder.judge: ladder}}))
    return ladder


async def ask_backend(run: Run, task: Task, backend: Asker, progress: Progress | None = None) -> AblationFile:
    """Ask the back-end about every turn that has no stored answer yet, and store its answers."""
    before = read(run)
    known = {(a.question_id, a.turn): a for a in (before.answers if before else ())}
    requests = requests_of(run, task)
    left = {
        key: request
        for key, request in requests.items()
        if isinstance(request, ChatRequest) and (key not in known or known[key].text is None)
    }
    if progress is not None and left:
        progress.stage("Asking the back-end in text", len(left))

    async def one(key: Key, request: ChatRequest) -> BackendAnswer:
        answer = await _answer(key, request, backend)
        if progress is not None:
            progress.step(
                f"{key[0]}/{key[1]}" + ("" if answer.text is not None else " fault: " + answer.reason)
            )
        return answer

    asked = dict(zip(left, await asyncio.gather(*(one(k, r) for k, r in left.items())), strict=True))
    answers: list[BackendAnswer] = []
    for key, request in requests.items():
        if isinstance(request, ChatRequest):
            answers.append(asked.get(key) or known[key])
        else:
            answers.append(BackendAnswer(question_id=key[0], turn=key[1], text=None, reason=request))
    made = AblationFile(
        backend=run.manifest.backend or "unknown",
        answers=tuple(answers),
        ladders=before.ladders if before else {},
    )
    if made != before:
        _write(run, made)
    return made


def requests_of(run: Run, task: Task) -> dict[Key, ChatRequest | str]:
    """For each turn the request with the full question, or the reason why it cannot be made."""
    logs: dict[str, OracleLog] = {
        question: oracle_log.read(run.session_folder(question))
        for question in run.sessions
        if (run.session_folder(question) / oracle_log.ORACLE_LOG).is_file()
    }
    settings = _settings(list(logs.values()))
    questions = {question.id: question for question in task.questions}
    made: dict[Key, ChatRequest | str] = {}
    for row in run.turns:
        key = (row.question_id, row.turn)
        if row.mark is None:
            made[key] = f"{row.fault.party}: {row.fault.kind}" if row.fault else "the turn was not played"
        elif row.question_id not in logs:
            made[key] = "the session has no injection log"
        elif settings is None:
            made[key] = "the log holds no request's messages, so the session's instructions are not known"
        else:
            made[key] = _request(row, task, questions[row.question_id], logs[row.question_id], settings)
    return made


def stored_backend_texts(run: Run) -> dict[Key, Answer]:
    """The stored answers of the back-end.

    Raises:
        BadRun: it was not asked yet.
    """
    file = read(run)
    if file is None:
        raise BadRun(
            f"{run.path}: its back-end was not asked in text yet. Ask it with: "
            f"kamebench score {run.path} --ablations"
        )
    return {
        (a.question_id, a.turn): missing(a.reason) if a.text is None else given(a.text, "an empty answer")
        for a in file.answers
    }


def read(run: Run) -> AblationFile | None:
    path = run.path / ABLATIONS
    return store.read_record(path, AblationFile) if path.is_file() else None


@dataclasses.dataclass(frozen=True, slots=True)
class _Settings:
    """What all requests of a run have in common."""

    instructions: str
    temperature: float
    max_tokens: int | None


def _settings(logs: list[OracleLog]) -> _Settings | None:
    for log in logs:
        for request in log.requests:
            messages = log.messages.get(request.messages_sha256 or "")
            if messages and messages[0].role == "system" and request.temperature is not None:
                return _Settings(
                    messages[0].content, request.temperature, log.header.settings.get("max_tokens")
                )
    return None


def _request(
    row: TurnRecord, task: Task, question: Question, log: OracleLog, settings: _Settings
) -> ChatRequest:
    """The session's conversation up to the turn, then the question in full, as the loop would have asked."""
    assert row.mark is not None
    conversation = history(log, TurnWindow.of(row.mark).start_frame)
    conversation.hear_final(question.turns[row.turn - 1].text)
    context = TurnContext(
        task.name,
        question.id,
        question.category,
        row.turn,
        tuple(turn.reference for turn in question.turns),
    )
    return ChatRequest(
        conversation.messages(settings.instructions), settings.temperature, settings.max_tokens, context
    )


def history(log: OracleLog, frame: int) -> Conversation:
    """What user and model had said, as the loop knew it before step `frame`."""
    conversation = Conversation()
    finals = [(row.frame, 0, row.text) for row in log.heard if row.final and row.frame <= frame]
    # A step is logged after it was made: what it said was known before the next one.
    pieces = [(step.frame, 1, step.piece) for step in log.steps if step.piece and step.frame < frame]
    for _, kind, text in sorted(finals + pieces, key=lambda event: event[:2]):
        if kind == 0:
            conversation.hear_final(text)
        else:
            conversation.speak(text.replace("▁", " "))
    return conversation


async def _answer(key: Key, request: ChatRequest, backend: Asker) -> BackendAnswer:
    asked: dict[str, Any] = {
        "question_id": key[0],
        "turn": key[1],
        "messages": _rows(request.messages),
        "temperature": request.temperature,
        "max_tokens": request.max_tokens,
    }
    try:
        completion = await backend.complete(request)
    except WorldFault as error:
        return BackendAnswer(**asked, text=None, reason=f"{error.party}: {error.kind}: {error}")
    return BackendAnswer(**asked, text=completion.text, finish_reason=completion.finish_reason)


def _rows(messages: tuple[Message, ...]) -> tuple[tuple[str, str], ...]:
    return tuple((message.role, message.content) for message in messages)


def _ladder(run: Run, judge: str) -> Ladder:
    tables = {what: run.table(f"{judge}.{what}") for what in (*LADDER, *BESIDE)}
    steps: list[Step] = []
    for start, to, between in STEPS:
        found = paired_difference(tables[start], tables[to])
        steps.append(
            Step(
                start=start,
                to=to,
                between=between,
                difference=found.difference,
                low=found.low,
                high=found.high,
                n=found.n,
                n_questions=found.n_questions,
                n_missing=found.n_missing,
                reason=found.reason,
            )
        )
    return Ladder(
        judge=judge,
        comparable_with_llm_judge=run.scores[f"{judge}.spoken"].comparable_with_llm_judge,
        scores={what: tuple(score_aggregates(table)) for what, table in tables.items()},
        steps=tuple(steps),
    )


def rows_of(ladder: Ladder, what: What) -> dict[str, float | None]:
    """Group -> mean score at one point, `overall` first."""
    return {row.group: row.value for row in ladder.scores[what]}


def _write(run: Run, file: AblationFile) -> None:
    store.write_derived(run.path, ABLATIONS, file)


__all__ = ["ABLATIONS", "BESIDE", "LADDER", "OVERALL", "STEPS", "AblationFile", "Ladder", "ablate"]

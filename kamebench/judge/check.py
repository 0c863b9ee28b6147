"""Is this judge any good? It scores answers whose quality is known, and its mistakes are counted."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
from pydantic import Field

from kamebench import store
from kamebench.errors import UserError
from kamebench.judge.base import Item, Judge, References
from kamebench.judge.items import items_of, reference_of
from kamebench.judge.known import NOISE, Known, known_answers, unrelated_to
from kamebench.judge.score import merge, score_name, spread
from kamebench.progress import Progress
from kamebench.records import SCHEMA_VERSION, Record, Verdict
from kamebench.store import Run
from kamebench.tasks import Question, Task, select

FOLDER = "judge-checks"

ORDER: tuple[tuple[str, str, bool], ...] = (
    ("reference", "reversed", True),
    ("reference", "off-topic", True),
    ("reference", "empty", True),
    ("reference", "truncated", False),
    ("reference", "noise-20", False),
    ("truncated", "empty", False),
    ("off-topic", "pleading", False),
)
"""(better, worse, strictly): what every judge should agree to."""


class CheckRow(Record):
    """One known answer and its verdict."""

    question_id: str
    turn: int
    kind: str
    text: str
    wer: float
    status: str
    score: float | None
    repeats: tuple[float, ...] = ()


class Violation(Record):
    """How often the better answer was not scored higher (`strict`) or was scored lower (else)."""

    better: str
    worse: str
    strict: bool
    violations: int
    n: int
    n_missing: int


class JudgeCheck(Record):
    """The result; differences are in points, paired by turn. None: nothing to compute it from."""

    schema_version: int = SCHEMA_VERSION
    judge: str
    task: str
    task_sha256: str
    settings: dict[str, Any]
    seed: int
    n_turns: int
    means: dict[str, float | None] = Field(description="kind -> mean score")
    missing: dict[str, int] = Field(description="kind -> answers without a score")
    violations: tuple[Violation, ...]
    repeat_sd: float | None = Field(description="pooled standard deviation of repeated scores")
    length_bias: float | None = Field(description="rambling minus reference")
    noise_loss: dict[str, float | None] = Field(description="kind -> reference minus noisy")
    noise_slope: float | None = Field(description="points lost for every 10 % of words wrong, by regression")
    pleading_gain: float | None = Field(description="off-topic with a plea to the judge minus off-topic")
    rows: tuple[CheckRow, ...]


async def check_judge(
    judge: Judge,
    task: Task,
    *,
    limit: int | None = None,
    references: References | None = None,
    repeats: int = 1,
    seed: int = 0,
    progress: Progress | None = None,
) -> JudgeCheck:
    """Have the judge score every kind of known answer to every turn that has a reference.

    Earlier turns of a question stand with their reference as their answer.

    Raises:
        UserError: the task has no references, or the judge cannot judge it.
    """
    judge.check(task)
    chosen = references or judge.references
    turns = _turns(select(task, limit=limit, seed=seed), chosen)
    if not turns:
        raise UserError(
            f"task '{task.name}': no question has a reference answer in every turn, so no answer's "
            "quality is known. Use another task, or another set with --references."
        )
    categories, texts = [item.category for item in turns], [item.answer for item in turns]
    asked: list[tuple[Item, Known]] = []
    for at, item in enumerate(turns):
        unrelated = unrelated_to(at, categories, texts)
        made = known_answers(item.answer, unrelated, f"{seed}/{item.question_id}/{item.turn}")
        asked += [(item, known) for known in made]
    if progress is not None:
        progress.stage(f"Checking {judge.name}", len(asked))
        judge.listen(getattr(progress, "waiting", None))

    async def one(item: Item, known: Known) -> Verdict:
        changed = _with_answer(item, known.text)
        verdict = merge([await judge.judge(changed, repeat) for repeat in range(repeats)])
        if progress is not None:
            progress.step(f"{item.question_id}/{item.turn} {known.kind}")
        return verdict

    verdicts = await asyncio.gather(*(one(item, known) for item, known in asked))
    rows = tuple(
        CheckRow(
            question_id=item.question_id,
            turn=item.turn,
            kind=known.kind,
            text=known.text,
            wer=known.wer,
            status=verdict.status,
            score=verdict.score,
            repeats=verdict.repeats,
        )
        for (item, known), verdict in zip(asked, verdicts, strict=True)
    )
    return _result(judge, task, score_name(judge, references, repeats), seed, rows, verdicts)


def keep(check: JudgeCheck, run: Run) -> None:
    """Store the result with a run; its hash goes into the run's manifest."""
    store.write_derived(run.path, f"{FOLDER}/{check.judge}.json", check)


def _turns(questions: Sequence[Question], references: References | None) -> list[Item]:
    """The turns of all questions that have a reference in every turn, with it as their answer."""
    items: list[Item] = []
    for question in questions:
        texts = [reference_of(turn, references) for turn in question.turns]
        known = [text for text in texts if text]
        if len(known) == len(texts):
            items += items_of(question, known, references)
    return items


def _with_answer(item: Item, text: str) -> Item:
    return Item(
        question_id=item.question_id,
        category=item.category,
        turn=item.turn,
        questions=item.questions,
        answers=(*item.answers[:-1], text),
        references=item.references,
        facts=item.facts,
    )


def _result(
    judge: Judge, task: Task, name: str, seed: int, rows: tuple[CheckRow, ...], verdicts: Sequence[Verdict]
) -> JudgeCheck:
    scores = {(row.question_id, row.turn, row.kind): row.score for row in rows}
    turns = list(dict.fromkeys((row.question_id, row.turn) for row in rows))
    kinds = list(dict.fromkeys(row.kind for row in rows))
    found = {kind: [s for t in turns if (s := scores[*t, kind]) is not None] for kind in kinds}

    def change(worse: str, better: str) -> float | None:
        pairs = [(scores[*t, worse], scores[*t, better]) for t in turns]
        both = [b - w for w, b in pairs if w is not None and b is not None]
        return float(np.mean(both)) if both else None

    return JudgeCheck(
        judge=name,
        task=task.name,
        task_sha256=task.sha256,
        settings=judge.settings(),
        seed=seed,
        n_turns=len(turns),
        means={kind: float(np.mean(values)) if values else None for kind, values in found.items()},
        missing={kind: len(turns) - len(values) for kind, values in found.items()},
        violations=tuple(_violation(scores, turns, *pair) for pair in ORDER),
        repeat_sd=spread(verdicts).get("repeat_sd"),
        length_bias=change("reference", "rambling"),
        noise_loss={kind: change(kind, "reference") for kind in NOISE},
        noise_slope=_slope(rows),
        pleading_gain=change("off-topic", "pleading"),
        rows=rows,
    )


def _violation(
    scores: dict[tuple[str, int, str], float | None],
    turns: Sequence[tuple[str, int]],
    better: str,
    worse: str,
    strict: bool,
) -> Violation:
    pairs = [(scores[*turn, better], scores[*turn, worse]) for turn in turns]
    both = [(high, low) for high, low in pairs if high is not None and low is not None]
    wrong = sum(high <= low if strict else high < low for high, low in both)
    return Violation(
        better=better,
        worse=worse,
        strict=strict,
        violations=wrong,
        n=len(both),
        n_missing=len(pairs) - len(both),
    )


def _slope(rows: Sequence[CheckRow]) -> float | None:
    """Points lost for 0.1 of word error, by least squares over reference and noisy answers."""
    points = [(r.wer, r.score) for r in rows if r.score is not None and r.kind in ("reference", *NOISE)]
    if len({wer for wer, _ in points}) < 2:
        return None
    wer, score = np.array(points, dtype=float).T
    return float(-np.polyfit(wer, score, 1)[0] / 10)

"""From a run's answers to what a judge is asked, turn by turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kamebench.errors import BadRun
from kamebench.judge.answers import Answer, Key
from kamebench.judge.base import LOWEST, Item, References
from kamebench.records import Verdict
from kamebench.store import Run
from kamebench.tasks import REFERENCE_SETS, Question, QuestionTurn, Task

# As in the published harness: what is judged against a reference. Elsewhere there is no one right answer.
REFERENCE_CATEGORIES = ("reasoning", "math", "coding")


def items_of(question: Question, answers: Sequence[str], references: References | None) -> list[Item]:
    """The items of one question's first len(answers) turns."""
    with_reference = question.category in REFERENCE_CATEGORIES
    turns = question.turns[: len(answers)]
    texts = tuple(turn.text for turn in turns)
    wanted = tuple(reference_of(turn, references) if with_reference else None for turn in turns)
    return [
        Item(
            question_id=question.id,
            category=question.category,
            turn=n,
            questions=texts[:n],
            answers=tuple(answers[:n]),
            references=wanted[:n],
            facts=turns[n - 1].facts,
        )
        for n in range(1, len(turns) + 1)
    ]


def reference_of(turn: QuestionTurn, references: References | None) -> str | None:
    """A turn's reference answer: `gold` and None mean gold where it is not empty, else corrected."""
    return turn.reference if references in (None, REFERENCE_SETS[0]) else turn.reference_of(references)


def plan_of(
    run: Run, task: Task, answers: dict[Key, Answer], references: References | None, *, needs_history: bool
) -> dict[Key, Item | Verdict]:
    """For each turn what to ask, or the verdict where there is nothing to ask."""
    questions = {question.id: question for question in task.questions}
    plan: dict[Key, Item | Verdict] = {}
    for question_id in dict.fromkeys(key[0] for key in answers):
        question = questions.get(question_id)
        if question is None:
            raise BadRun(f"{run.path}: task '{task.name}' has no question '{question_id}'. Restore the task.")
        turns = [answers[key] for key in sorted(key for key in answers if key[0] == question_id)]
        items = items_of(question, [answer.text for answer in turns], references)
        for n, (item, answer) in enumerate(zip(items, turns, strict=True)):
            unknown = needs_history and any(earlier.as_history is None for earlier in turns[:n])
            plan[question_id, item.turn] = _unasked(item, answer, unknown) or item
    return plan


def _unasked(item: Item, answer: Answer, history_unknown: bool) -> Verdict | None:
    base: dict[str, Any] = {
        "question_id": item.question_id,
        "turn": item.turn,
        "reference": item.reference,
    }
    if answer.kind == "missing":
        return Verdict(**base, status="missing", reason=answer.reason)
    if answer.kind == "empty":
        return Verdict(**base, status="silent", score=LOWEST, reason=answer.reason, answer="")
    if history_unknown:
        reason = "an earlier turn's answer is not known, and the judge needs it"
        return Verdict(**base, status="missing", reason=reason, answer=answer.text)
    return None

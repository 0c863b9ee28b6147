"""The judge `facts`: which of a turn's facts were said. Deterministic, offline, knows nothing of language.

Score = 1 + 9 * (facts said / facts of the turn). A fact counts as said when one of its accepted spoken forms
stands in the answer, whole words, both normalised. It does not understand: a negated, hedged or quoted fact
counts as said, a right answer in words nobody listed does not. Not comparable with an LLM judge.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from kamebench.asr.normalise import normalise
from kamebench.errors import UserError
from kamebench.judge.base import HIGHEST, LOWEST, Item, Judge, JudgeOptions
from kamebench.records import Verdict
from kamebench.tasks import Fact, Task

# Numbers of neighbouring phrases run together when punctuation goes first: "two. Four" would become 24. At a
# comma both are meant: "two, four" and "one thousand, two hundred".
_SENTENCE_END = re.compile(r"[;:.!?](?=\s|$)|\n| [-–—] ")
_PHRASE_END = re.compile(rf"{_SENTENCE_END.pattern}|,(?=\s|$)")


def create(options: JudgeOptions) -> FactsJudge:
    """The judge, which has no options.

    Raises:
        UserError: an option that only language models have.
    """
    if options.preset or options.speech_aware:
        raise UserError(
            "the judge 'facts' has no presets and no prompt: leave --preset and --speech-aware out, "
            "or choose a language model."
        )
    return FactsJudge()


class FactsJudge(Judge):
    name = "facts"
    comparable_with_llm_judge = False
    needs_history = False

    def check(self, task: Task) -> None:
        if not task.has_facts:
            raise UserError(
                f"task '{task.name}' has turns without facts, so the judge 'facts' cannot score it. "
                "Choose a language model as judge (--judge gpt-4.1, claude-opus-4-1, gemini-2.5-flash, "
                "openai-compatible:MODEL), or none (--judge none)."
            )

    def settings(self) -> dict[str, Any]:
        return {
            "judge": "facts",
            "scale": "1 + 9 * share of the turn's facts said",
            "matching": "whole words after normalisation; any accepted form counts",
        }

    async def judge(self, item: Item, repeat: int = 0) -> Verdict:
        del repeat
        found = {fact.name: said(fact, item.answer) for fact in item.facts}
        n_found = sum(form is not None for form in found.values())
        missed = [name for name, form in found.items() if form is None]
        return Verdict(
            question_id=item.question_id,
            turn=item.turn,
            status="scored",
            score=LOWEST + (HIGHEST - LOWEST) * n_found / len(found),
            reason=f"{n_found} of {len(found)} facts said"
            + (f"; not: {', '.join(missed)}" if missed else ""),
            answer=item.answer,
            reference=item.reference,
            detail={
                "found": {name: form for name, form in found.items() if form is not None},
                "missed": missed,
            },
        )


def said(fact: Fact, answer: str) -> str | None:
    """The first accepted form that stands in the answer, or None."""
    where = spellings(answer)
    for form in fact.accepts:
        if any(f" {wanted} " in f" {text} " for wanted in spellings(form) if wanted for text in where):
            return form
    return None


@cache
def spellings(text: str) -> tuple[str, ...]:
    """The text normalised sentence by sentence, and phrase by phrase; once where both are the same."""
    return tuple(dict.fromkeys(_apart(text, end) for end in (_SENTENCE_END, _PHRASE_END)))


def _apart(text: str, end: re.Pattern[str]) -> str:
    return " ".join(filter(None, (normalise(part) for part in end.split(text))))

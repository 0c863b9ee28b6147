"""What a language model is asked as judge: MT-Bench's published prompts, fetched and never in the repository.

Turn 1 gets `single-v1`, a later turn `single-v1-multi-turn`; with a reference answer `single-math-v1` and
`single-math-v1-multi-turn`. The messages equal, character by character, what the published harness
(FastChat's llm_judge) sends to a model that is given OpenAI's chat format: the prompt's system text as the
system message, the filled template as the user message.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from kamebench import assets
from kamebench.errors import AssetFault
from kamebench.judge.base import Item
from kamebench.llm.base import Message

ASSET = "mt-bench"
SPEECH_NOTE = (
    "The answer was spoken aloud in a conversation and written down by a speech recogniser. Judge what was "
    "said: do not count spelling, punctuation, missing formatting or an evident misrecognition against it, "
    "and do not expect the length or the layout of a written answer."
)


@dataclass(frozen=True, slots=True)
class Prompt:
    """One published prompt."""

    name: str
    system: str
    template: str

    @property
    def sha256(self) -> str:
        return hashlib.sha256(f"{self.system}\n{self.template}".encode()).hexdigest()


@cache
def published_prompts() -> dict[str, Prompt]:
    """The published prompts by name; fetched on first use.

    Raises:
        AssetFault: they cannot be fetched.
    """
    text = (assets.fetch(ASSET) / "judge_prompts.jsonl").read_text(encoding="utf-8")
    rows = [json.loads(line) for line in text.splitlines() if line.strip()]
    return {row["name"]: Prompt(row["name"], row["system_prompt"], row["prompt_template"]) for row in rows}


def prompt_named(name: str) -> Prompt:
    prompts = published_prompts()
    if name not in prompts:
        raise AssetFault(f"the fetched judge prompts hold no '{name}', only: {', '.join(prompts)}.")
    return prompts[name]


def single_prompt(item: Item) -> Prompt:
    """The prompt for grading this item's last answer."""
    later = "-multi-turn" if item.turn > 1 else ""
    return prompt_named(("single-math-v1" if with_reference(item) else "single-v1") + later)


def pair_prompt(item: Item) -> Prompt:
    """The prompt for comparing two answers to this item's last question."""
    later = "-multi-turn" if item.turn > 1 else ""
    return prompt_named(("pair-math-v1" if with_reference(item) else "pair-v2") + later)


def with_reference(item: Item) -> bool:
    """Whether every turn that the prompt shows has a reference answer."""
    return all(reference is not None for reference in item.references[-2:])


def single_messages(item: Item, answers: Sequence[str], *, speech_aware: bool = False) -> tuple[Message, ...]:
    """The request for grading `answers[-1]`; `answers` are the item's, as the judge is to see them."""
    prompt = single_prompt(item)
    if item.turn == 1:
        fields = {"question": item.question, "answer": answers[-1]}
    else:
        fields = {**_questions(item), "answer_1": answers[-2], "answer_2": answers[-1]}
    user = prompt.template.format(**fields, **_references(item))
    return _messages(prompt, user, speech_aware)


def pair_messages(
    item: Item, first: Sequence[str], second: Sequence[str], *, speech_aware: bool = False
) -> tuple[Message, ...]:
    """The request for comparing answers `first` (shown as A) with `second` (B)."""
    prompt = pair_prompt(item)
    if item.turn == 1:
        fields = {"question": item.question, "answer_a": first[-1], "answer_b": second[-1]}
    else:
        fields = {
            **_questions(item),
            "answer_a_1": first[-2],
            "answer_a_2": first[-1],
            "answer_b_1": second[-2],
            "answer_b_2": second[-1],
        }
    user = prompt.template.format(**fields, **_references(item))
    return _messages(prompt, user, speech_aware)


def _questions(item: Item) -> dict[str, str]:
    return {"question_1": item.questions[-2], "question_2": item.questions[-1]}


def _references(item: Item) -> dict[str, str]:
    if not with_reference(item):
        return {}
    return {f"ref_answer_{n}": str(text) for n, text in enumerate(item.references[-2:], start=1)}


def _messages(prompt: Prompt, user: str, speech_aware: bool) -> tuple[Message, ...]:
    system = f"{prompt.system.rstrip()}\n\n{SPEECH_NOTE}" if speech_aware else prompt.system
    return Message("system", system), Message("user", user)

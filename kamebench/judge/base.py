"""What a judge is: it gets one turn as text and says how good the answer is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from kamebench.judge.limit import AdaptiveLimit, OnWait
from kamebench.llm.cost import Estimate
from kamebench.records import Verdict
from kamebench.tasks import Fact, Task

LOWEST, HIGHEST = 1.0, 10.0

References = Literal["gold", "corrected", "original"]


@dataclass(frozen=True, slots=True)
class Item:
    """One turn to be judged: all texts up to and including it, oldest first, so each tuple is [turn] long.

    An earlier turn that was not answered has an empty answer. `references` is None where there is none.
    """

    question_id: str
    category: str
    turn: int
    questions: tuple[str, ...]
    answers: tuple[str, ...]
    references: tuple[str | None, ...]
    facts: tuple[Fact, ...] = ()

    @property
    def question(self) -> str:
        return self.questions[-1]

    @property
    def answer(self) -> str:
        return self.answers[-1]

    @property
    def reference(self) -> str | None:
        return self.references[-1]


@dataclass(frozen=True, slots=True)
class JudgeOptions:
    """How a judge is opened.

    Attributes:
        spec: what follows the judge's name and a colon, or the whole name of a language model.
        preset: "published": old numbers' way (original references, first match, no second asking).
        speech_aware: tell a language model that the answer was spoken and recognised.
        url: of an openai-compatible server.
        cache: folder of earlier verdicts; None: the default one. use_cache False: ask anew, keep nothing.
        max_cost: US dollars after which it stops; for each judge of a panel.
        limits: requests in flight by provider, shared by the judges of a panel.
    """

    spec: str
    preset: Literal["published"] | None = None
    speech_aware: bool = False
    url: str | None = None
    cache: Path | None = None
    use_cache: bool = True
    max_cost: float | None = None
    limits: dict[str, AdaptiveLimit] = field(default_factory=dict[str, AdaptiveLimit])


class Judge(ABC):
    """Gives verdicts.

    Attributes:
        name: of its score files; safe as a file name, and another one for every way of judging.
        family: who made the model behind it ("openai", ...), or "kamebench".
        comparable_with_llm_judge: whether its scores may stand beside those of a language model.
        needs_history: whether a turn cannot be judged when an earlier answer is not known.
        references: the set it must be given, or None for the task's default.
    """

    name: str
    family: str = "kamebench"
    comparable_with_llm_judge: bool = True
    needs_history: bool = True
    references: References | None = None

    def check(self, task: Task) -> None:
        """Refuse a task that it cannot judge.

        Raises:
            UserError: naming the judges that can.
        """

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """Everything that decides its scores beside the texts; equal settings, comparable scores."""

    def warnings(self, backend: str | None) -> tuple[str, ...]:
        """What a reader should know about this judge and a run with that back-end."""
        del backend
        return ()

    @abstractmethod
    async def judge(self, item: Item, repeat: int = 0) -> Verdict:
        """The verdict on the item's last turn; `repeat` counts from 0 where it is asked several times.

        A failure is a verdict too, with its status and without a score.
        """

    def listen(self, on_wait: OnWait | None) -> None:
        """Say who is to be told when requests wait for a provider's limit."""
        del on_wait

    def order(self, items: list[Item]) -> list[Item]:
        """The order in which it wants to be asked."""
        return items

    def summary(self, verdicts: list[Verdict]) -> dict[str, Any]:
        """What is to be said about all verdicts of a run together; for a panel its agreement."""
        del verdicts
        return {}

    def estimate(self, items: list[Item], repeats: int) -> list[Estimate]:
        """What judging these would ask and cost beside what is cached; one for each model."""
        del items, repeats
        return []

    def usage(self) -> dict[str, Any]:
        """Requests, tokens and cost so far; empty for a judge that costs nothing."""
        return {}

    async def aclose(self) -> None:
        """Release connections."""

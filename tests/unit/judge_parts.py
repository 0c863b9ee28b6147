"""A task and runs of it, for tests of judges."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from kamebench import store
from kamebench.llm.base import Backend, ChatRequest, StreamEnd, TextChunk, Usage
from kamebench.tasks import Fact, Question, QuestionTurn, Task
from tests.synthetic import CATEGORIES, Planted, make_run, sha

PLAN = {
    "a": [Planted(text="You pay thirty dollars."), Planted(text="Ninety dollars altogether.")],
    "b": [Planted(text="Water is H2O."), Planted(latency_ms=None)],
    "c": [Planted(text="It began in 1789."), Planted(fault=True)],
}


def make_task(facts: bool = True) -> Task:
    """Three questions of two turns: a reasoning, b stem, c humanities."""
    said = {
        "a": (("price", "$30"), ("total", "90 dollars")),
        "b": (("formula", "H two O"), ("boils", "100 degrees")),
        "c": (("year", "seventeen eighty nine"), ("end", "1799")),
    }
    questions = tuple(
        Question(
            id=name,
            category=CATEGORIES[at],
            turns=tuple(
                QuestionTurn(
                    text=f"Question {name} turn {turn}?",
                    references={
                        "gold": f"gold {name}{turn}" if turn == 1 else None,
                        "corrected": f"corrected {name}{turn}",
                        "original": f"original {name}{turn}",
                    },
                    facts=(Fact(name=fact, accepts=("not this", form)),) if facts else (),
                )
                for turn, (fact, form) in enumerate(said[name], start=1)
            ),
        )
        for at, name in enumerate(said)
    )
    return Task("synthetic", "1", "for tests", CATEGORIES, questions, sha("synthetic1"))


def judged_run(folder: Path, **options: object) -> store.Run:
    return make_run(folder, PLAN, **options)  # type: ignore[arg-type]


class Answering(Backend):
    """A back-end whose answers come from a function of the request; counts what it is asked."""

    def __init__(self, answer: Callable[[ChatRequest], str], family: str = "openai") -> None:
        self.name, self.family = "answering", family
        self._answer = answer
        self.requests: list[ChatRequest] = []
        self.in_flight = self.most_in_flight = 0

    async def stream(self, request: ChatRequest) -> AsyncIterator[TextChunk | StreamEnd]:
        self.requests.append(request)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await asyncio.sleep(0)
            text = self._answer(request)
            if text:
                yield TextChunk(text)
            yield StreamEnd("stop", Usage(len(request.messages[-1].content), len(text)))
        finally:
            self.in_flight -= 1

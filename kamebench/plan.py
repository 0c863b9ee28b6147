"""What decides a run, what it will cost, and the parts it is carried out with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from kamebench.clock import Pace
from kamebench.errors import BadConfig
from kamebench.judge import open_judge
from kamebench.judge.base import Judge, References
from kamebench.judge.items import items_of
from kamebench.judge.score import score_name
from kamebench.llm import open_backend
from kamebench.llm.base import Backend
from kamebench.llm.cost import Estimate, cascade_load, estimate, oracle_load
from kamebench.records import Record
from kamebench.speech import open_engine
from kamebench.speech.base import SpeechEngine
from kamebench.systems import Setup, SystemFile, open_system
from kamebench.systems.base import System
from kamebench.tasks import Question, Task, load_task


class RunPlan(Record):
    """All that decides a run; kept in its manifest, so that it can be taken up again."""

    system: SystemFile
    backend: str | None
    backend_url: str | None = None
    task: str
    questions: tuple[str, ...]
    pace: Pace | None = Field(default=None, description="None: virtual where the system can, else realtime")
    seed: int = 0
    sessions: int = Field(default=1, ge=1)
    wait: bool = True
    voice: str = "piper:joe"
    recogniser: str = "faster-whisper:tiny.en"
    judge: str = "facts"
    judge_url: str | None = None
    preset: Literal["published"] | None = None
    references: References | None = None
    judge_repeats: int = Field(default=1, ge=1)
    record_to: str | None = None
    max_cost: float | None = Field(default=None, description="US dollars, for back-end and judge each")
    window_s: float = 15.0

    def open_judge(self) -> Judge:
        return open_judge(self.judge, preset=self.preset, url=self.judge_url, max_cost=self.max_cost)


@dataclass(frozen=True, slots=True)
class Opened:
    """What a run talks to, from its plan."""

    plan: RunPlan
    backend: Backend | None
    system: System
    voice: SpeechEngine

    async def aclose(self) -> None:
        await self.system.aclose()
        if self.backend is not None:
            await self.backend.aclose()
        self.voice.close()


WORDS_PER_S = 2.6  # of the questions as Piper speaks them
SPOKEN_ANSWER = "word " * 60


def estimates(plan: RunPlan, root: Path | None) -> dict[str, Estimate]:
    """What a run will ask of its back-end and its judge, and what that costs; nothing is asked."""
    task, opened = load_task(plan.task, root), open_plan(plan)
    questions = chosen_questions(plan, task)
    texts = [[turn.text for turn in question.turns] for question in questions]
    found: dict[str, Estimate] = {}
    backend = opened.backend
    if backend is not None:
        instructions = str(plan.system.options.get("instructions", SPOKEN_ANSWER))
        if opened.system.capabilities.accepts_oracle:
            lengths = [len(text.split()) / WORDS_PER_S for turns in texts for text in turns]
            load = oracle_load(texts, lengths, instructions=instructions)
        else:
            load = cascade_load(texts, instructions=instructions)
        found["back-end"] = estimate(backend.family, backend.name, load, billed=backend.billed)
    if plan.judge != "none":
        items = [i for q in questions for i in items_of(q, [SPOKEN_ANSWER] * len(q.turns), plan.references)]
        judge = plan.open_judge()
        for place, asked in enumerate(judge.estimate(items, plan.judge_repeats), start=1):
            found["judge" if place == 1 else f"judge {place}"] = asked
    return found


def open_plan(plan: RunPlan, spent: float = 0.0) -> Opened:
    """Open back-end, system and voice; nothing heavy is loaded yet, and what cannot work is refused.

    Args:
        spent: US dollars that earlier stretches of the run have spent already; they count against its limit.
    """
    backend: Backend | None = None
    if plan.backend is not None:
        record_to = Path(plan.record_to) if plan.record_to else None
        backend = open_backend(
            plan.backend, url=plan.backend_url, record=record_to, max_cost=plan.max_cost, spent=spent
        )
    system = open_system(plan.system, Setup(plan.system.options, backend, plan.backend, plan.sessions))
    can, name = system.capabilities, plan.system.name
    pace = plan.pace or ("virtual" if can.knows_idle else "realtime")
    if pace not in can.paces():
        raise BadConfig(
            f"system '{name}' cannot run in pace '{pace}'. It can run in: {', '.join(can.paces())}."
        )
    if plan.sessions > can.max_sessions:
        raise BadConfig(
            f"--sessions {plan.sessions}: system '{name}' holds at most {can.max_sessions} conversation(s) "
            "side by side. Ask for fewer."
        )
    return Opened(plan.model_copy(update={"pace": pace}), backend, system, open_engine(plan.voice))


def primary_score(plan: RunPlan) -> str | None:
    """Name of the run's headline score file; None without a judge."""
    if plan.judge == "none":
        return None
    return f"{score_name(plan.open_judge(), plan.references, plan.judge_repeats)}.spoken"


def chosen_questions(plan: RunPlan, task: Task) -> list[Question]:
    """The questions of a plan, in its order."""
    by_id = {question.id: question for question in task.questions}
    return [by_id[name] for name in plan.questions]

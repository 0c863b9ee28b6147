"""Verdicts on answers.

A judge's name is `facts`, `none`, a language model as for a back-end ("gpt-4.1", "openai-compatible:MODEL"),
or several of these with commas between them: a panel. Plug-ins join through the group `kamebench.judges` with
a function that takes a `JudgeOptions`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from kamebench.errors import UserError
from kamebench.judge.base import JudgeOptions
from kamebench.judge.score import score_run
from kamebench.registry import Entry, Registry

__all__ = ["JUDGES", "default_judge", "judge_name", "open_judge", "score_run"]

if TYPE_CHECKING:
    from kamebench.judge.base import Judge
    from kamebench.tasks import Task

JUDGES = Registry(
    "judge",
    "kamebench.judges",
    {
        "facts": Entry("kamebench.judge.facts:create"),
    },
)


def open_judge(
    spec: str,
    *,
    preset: Literal["published"] | None = None,
    speech_aware: bool = False,
    url: str | None = None,
    cache: Path | None = None,
    use_cache: bool = True,
    max_cost: float | None = None,
) -> Judge:
    """The judge of a name. No key is needed and nothing is connected before it is first asked.

    Args:
        spec: see the module. The others: see `JudgeOptions`.

    Raises:
        UnknownName, UserError: no such judge, or options that it does not have.
    """
    names = [name.strip() for name in spec.split(",")]
    if "" in names or "none" in names:
        raise UserError(
            f"judge '{spec}': name a judge, or several with commas; 'none' has no verdicts to give."
        )
    options = JudgeOptions("", preset, speech_aware, url, cache, use_cache, max_cost)
    judges: list[Judge] = []
    for name in names:
        kind, _, rest = name.partition(":")
        if kind in JUDGES.names():
            judges.append(JUDGES.load(kind)(replace(options, spec=rest)))
        else:
            from kamebench.judge.model import create

            judges.append(create(replace(options, spec=name)))
    if len(judges) == 1:
        return judges[0]
    from kamebench.judge.panel import Panel

    return Panel(judges)


def judge_name(spec: str) -> str:
    """The judge's part of the names of its score files."""
    return open_judge(spec).name


def default_judge(task: Task) -> str:
    """`facts` where the task has facts, else none: a language model is asked only when it is named."""
    return "facts" if task.has_facts else "none"

"""Two runs judged against each other, turn by turn, each pair in both orders.

A judge that names the same run in both orders has decided; one that follows the position has not, and the
turn counts as a tie (Zheng et al. 2023, "Judging LLM-as-a-Judge", section 3.4). How often that happens is
reported as position bias.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Literal

import pandas as pd
from pydantic import Field

from kamebench import store
from kamebench.errors import BadRun, UserError, WorldFault
from kamebench.judge.answers import answers_of
from kamebench.judge.base import Item, Judge, References
from kamebench.judge.items import plan_of
from kamebench.judge.model import ModelJudge
from kamebench.judge.parsing import Winner, parse_winner, parse_winner_published
from kamebench.judge.prompts import pair_messages, pair_prompt
from kamebench.judge.shield import shield
from kamebench.progress import Progress
from kamebench.records import SCHEMA_VERSION, Aggregate, Record, Verdict, What
from kamebench.stats.aggregates import aggregate
from kamebench.stats.turns import column, pick
from kamebench.store import Run
from kamebench.tasks import Task

FOLDER = "pairwise"
POINTS = {"win": 1.0, "tie": 0.5, "loss": 0.0}


class Pair(Record):
    """One turn. `as_a` and `as_b`: the winner when this run was shown as A and as B."""

    question_id: str
    category: str
    turn: int
    outcome: Literal["win", "tie", "loss"] | None
    reason: str = ""
    as_a: Winner | None = None
    as_b: Winner | None = None
    explanations: tuple[str, ...] = ()
    neutralised: tuple[str, ...] = ()


class PairFile(Record):
    """`pairwise/<judge>.<what>.<run id of the other>.json`."""

    schema_version: int = SCHEMA_VERSION
    judge: str
    what: What
    settings: dict[str, Any]
    this_run: str
    other_run: str
    warnings: tuple[str, ...] = ()
    win_rate: Aggregate = Field(description="1 for a win, 0.5 for a tie, 0 for a loss")
    counts: dict[str, int]
    position: dict[str, float | int | None] = Field(
        description="turns asked; share decided alike in both orders, won by A both times, by B both times"
    )
    turns: tuple[Pair, ...]

    @property
    def name(self) -> str:
        return f"{self.judge}.{self.what}.{self.other_run}"


async def compare_runs(
    run: Run,
    other: Run,
    judge: Judge,
    *,
    task: Task,
    what: What = "spoken",
    references: References | None = None,
    progress: Progress | None = None,
) -> PairFile:
    """Judge two runs of one task against each other and store the result with the first.

    Where one run has no answer to a turn it has lost, where both have none it is a tie; nobody is asked.

    Raises:
        UserError: the judge is no single language model, or the runs share no turn.
    """
    if not isinstance(judge, ModelJudge):
        raise UserError(f"judge '{judge.name}' gives scores only. Compare with one language model as judge.")
    for one in (run, other):
        if one.manifest.task_sha256 != task.sha256:
            raise BadRun(
                f"{one.path}: was not made with this version of task '{task.name}'. Restore the task."
            )
    chosen = references or judge.references
    plans = [plan_of(one, task, answers_of(one, what), chosen, needs_history=True) for one in (run, other)]
    keys = [key for key in plans[0] if key in plans[1]]
    if not keys:
        raise UserError(f"{run.path} and {other.path} share no turn. Compare runs of the same questions.")
    if progress is not None:
        progress.stage(f"Comparing with {judge.name}", len(keys))
        judge.listen(getattr(progress, "waiting", None))
    categories = {question.id: question.category for question in task.questions}

    async def one_pair(key: tuple[str, int]) -> Pair:
        pair = await _pair(judge, categories[key[0]], key, plans[0][key], plans[1][key])
        if progress is not None:
            progress.step(f"{key[0]}/{key[1]}" + (f" fault: {pair.reason}" if pair.outcome is None else ""))
        return pair

    pairs = await asyncio.gather(*(one_pair(key) for key in keys))
    settings = judge.settings() | {"mode": "pairwise", "references": chosen or "gold"}
    settings["prompts"] = sorted({pair_prompt(p).name for p in plans[0].values() if isinstance(p, Item)})
    file = PairFile(
        judge=judge.name,
        what=what,
        settings=settings,
        this_run=run.manifest.run_id,
        other_run=other.manifest.run_id,
        warnings=judge.warnings(run.manifest.backend) + judge.warnings(other.manifest.backend),
        win_rate=_win_rate(pairs),
        counts={name: sum(pair.outcome == name for pair in pairs) for name in POINTS}
        | {"missing": sum(pair.outcome is None for pair in pairs)},
        position=_position(pairs),
        turns=tuple(pairs),
    )
    store.write_derived(run.path, f"{FOLDER}/{file.name}.json", file)
    return file


async def _pair(
    judge: ModelJudge, category: str, key: tuple[str, int], this: Item | Verdict, other: Item | Verdict
) -> Pair:
    base: dict[str, Any] = {"question_id": key[0], "turn": key[1], "category": category}
    for side in (this, other):
        if isinstance(side, Verdict) and side.status != "silent":
            return Pair(**base, outcome=None, reason=side.reason)
    if isinstance(this, Verdict) or isinstance(other, Verdict):
        silent = (isinstance(this, Verdict), isinstance(other, Verdict))
        outcome = {(True, True): "tie", (True, False): "loss", (False, True): "win"}[silent]
        return Pair(**base, outcome=outcome, reason="no answer")  # pyright: ignore[reportArgumentType]
    shown = [[shield(text) for text in side.answers] for side in (this, other)]
    changed = [span for side in shown for one in side for span in one.changed]
    texts = [
        list(side.answers) if judge.published else [one.text for one in made]
        for side, made in zip((this, other), shown, strict=True)
    ]
    try:
        first, told_first = await _ask(judge, this, texts[0], texts[1])
        second, told_second = await _ask(judge, this, texts[1], texts[0])
    except WorldFault as error:
        return Pair(**base, outcome=None, reason=f"{error.party}: {error.kind}: {error}")
    base |= {
        "as_a": first,
        "as_b": second,
        "explanations": (told_first, told_second),
        "neutralised": () if judge.published else tuple(changed),
    }
    if first is None or second is None:
        return Pair(**base, outcome=None, reason="no verdict")
    if (first, second) in (("A", "B"), ("B", "A")):
        return Pair(**base, outcome="win" if first == "A" else "loss")
    return Pair(
        **base, outcome="tie", reason="" if first == second == "tie" else "undecided: it followed the order"
    )


async def _ask(
    judge: ModelJudge, item: Item, first: Sequence[str], second: Sequence[str]
) -> tuple[Winner | None, str]:
    messages = pair_messages(item, first, second, speech_aware=judge.speech_aware)
    parse = parse_winner_published if judge.published else parse_winner
    winner, told = await judge.ask(messages, parse, judge.key(item, messages, 0))
    return winner, told[-1]


def _win_rate(pairs: Sequence[Pair]) -> Aggregate:
    table = pd.DataFrame(
        [
            {
                "question_id": pair.question_id,
                "category": pair.category,
                "turn": pair.turn,
                "points": None if pair.outcome is None else POINTS[pair.outcome],
            }
            for pair in pairs
        ]
    )
    turns = pick(table, column(table, "points"))
    return aggregate("win_rate", "overall", turns, bounds=(0, 1))


def _position(pairs: Sequence[Pair]) -> dict[str, float | int | None]:
    asked = [(pair.as_a, pair.as_b) for pair in pairs if pair.as_a is not None and pair.as_b is not None]
    alike = sum(verdicts in (("A", "B"), ("B", "A"), ("tie", "tie")) for verdicts in asked)

    def share(count: int) -> float | None:
        return count / len(asked) if asked else None

    return {
        "turns": len(asked),
        "consistent": share(alike),
        "first_both_times": share(sum(verdicts == ("A", "A") for verdicts in asked)),
        "second_both_times": share(sum(verdicts == ("B", "B") for verdicts in asked)),
    }

"""Score a stored run: every turn's answer to the judge, the verdicts to `scores/<judge>.<what>.json`."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Sequence
from typing import Any

from kamebench import store
from kamebench.errors import BadRun, UserError
from kamebench.judge.answers import answers_of
from kamebench.judge.base import Item, Judge, References
from kamebench.judge.items import REFERENCE_CATEGORIES, plan_of
from kamebench.llm.cost import Estimate
from kamebench.progress import Progress
from kamebench.records import Verdict, VerdictFile, What
from kamebench.store import Run
from kamebench.tasks import Task


async def score_run(
    run: Run,
    judge: Judge,
    *,
    task: Task,
    what: What = "spoken",
    references: References | None = None,
    repeats: int = 1,
    progress: Progress | None = None,
) -> VerdictFile:
    """Judge every turn of a run, write its score file and seal the run.

    Nothing is played again. Turns without an answer score 1 unasked; faults and the unknown are missing.

    Args:
        task: the one the run was made with.
        what: which text of a turn is its answer.
        references: the set of reference answers; default the judge's own, else `gold` where it is not empty
            and `corrected` elsewhere (asking for `gold` means the same).
        repeats: how often each turn is judged; its score is then the mean, with all scores beside it.

    Raises:
        UserError: the task has changed since the run, or the judge cannot judge it.
        KamebenchError: the judge's limit of cost was reached; what was judged so far is in its cache.
    """
    _check(run, task, judge, repeats)
    chosen = references or judge.references
    plan = plan_of(run, task, answers_of(run, what), chosen, needs_history=judge.needs_history)
    items = judge.order([item for item in plan.values() if isinstance(item, Item)])
    if progress is not None:
        progress.stage(f"Judging with {judge.name}", len(items))
        judge.listen(getattr(progress, "waiting", None))

    judged = {(v.question_id, v.turn): v for v in await _ask_all(judge, items, repeats, progress)}
    settings = judge.settings()
    if judge.needs_history and any(q.category in REFERENCE_CATEGORIES for q in task.questions):
        settings["references"] = chosen or "gold"
    if repeats > 1:
        settings["repeats"] = repeats
    file = VerdictFile(
        judge=score_name(judge, references, repeats),
        what=what,
        settings=settings,
        comparable_with_llm_judge=judge.comparable_with_llm_judge,
        warnings=judge.warnings(run.manifest.backend),
        summary=spread(list(judged.values())) | judge.summary(list(judged.values())),
        turns=tuple(judged[key] if isinstance(item, Item) else item for key, item in plan.items()),
    )
    write_scores(run, file)
    return file


def estimate_run(
    run: Run,
    judge: Judge,
    *,
    task: Task,
    what: What = "spoken",
    references: References | None = None,
    repeats: int = 1,
) -> list[Estimate]:
    """What `score_run` would ask and cost, nothing asked; answers in the cache cost nothing."""
    _check(run, task, judge, repeats)
    chosen = references or judge.references
    plan = plan_of(run, task, answers_of(run, what), chosen, needs_history=judge.needs_history)
    return judge.estimate([item for item in plan.values() if isinstance(item, Item)], repeats)


def score_name(judge: Judge, references: References | None = None, repeats: int = 1) -> str:
    """The judge's part of a score file's name: another way of judging never overwrites it."""
    name = judge.name
    if references not in (None, "gold", judge.references):
        name += f"+{references}"
    return name if repeats == 1 else f"{name}+x{repeats}"


def write_scores(run: Run, file: VerdictFile) -> None:
    """Write a score file of a run."""
    store.write_derived(run.path, f"scores/{file.name}.json", file)


def merge(verdicts: Sequence[Verdict]) -> Verdict:
    """Several verdicts on one turn as one: the mean of the scores there are, and all of them beside it."""
    scored = [verdict for verdict in verdicts if verdict.score is not None]
    if len(verdicts) == 1 or not scored:
        return verdicts[0]
    scores = tuple(verdict.score for verdict in scored if verdict.score is not None)
    failed = len(verdicts) - len(scored)
    return scored[0].model_copy(
        update={
            "score": statistics.fmean(scores),
            "repeats": scores,
            "attempts": sum(verdict.attempts for verdict in verdicts),
            "reason": f"mean of {len(scores)} verdicts" + (f", {failed} more failed" if failed else ""),
            "detail": scored[0].detail | {"explanations": [verdict.explanation for verdict in scored]},
        }
    )


def spread(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    """How far repeated scores of the same turn lie apart; empty where nothing was repeated.

    `repeat_sd` is the pooled standard deviation over turns (points), `repeat_range_max` the widest range.
    """
    several = [verdict.repeats for verdict in verdicts if len(verdict.repeats) > 1]
    if not several:
        return {}
    freedom = sum(len(scores) - 1 for scores in several)
    squares = sum(statistics.variance(scores) * (len(scores) - 1) for scores in several)
    return {
        "repeat_sd": (squares / freedom) ** 0.5,
        "repeat_range_max": max(max(scores) - min(scores) for scores in several),
        "turns_repeated": len(several),
    }


async def _ask_all(
    judge: Judge, items: Sequence[Item], repeats: int, progress: Progress | None
) -> list[Verdict]:
    """Ask about all items side by side; the judge itself limits how many requests are in flight."""

    async def one(item: Item) -> Verdict:
        verdict = merge([await judge.judge(item, repeat) for repeat in range(repeats)])
        if progress is not None:
            note = f" fault: {verdict.reason}" if verdict.status == "judge_fault" else ""
            progress.step(f"{item.question_id}/{item.turn}{note}")
        return verdict

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(item)) for item in items]
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


def _check(run: Run, task: Task, judge: Judge, repeats: int) -> None:
    manifest = run.manifest
    if repeats < 1:
        raise UserError(f"{repeats} judge repeats: ask for at least 1.")
    if task.sha256 != manifest.task_sha256:
        raise BadRun(
            f"{run.path}: task '{task.name}' has changed since the run ({manifest.task_sha256[:12]} -> "
            f"{task.sha256[:12]}). Restore version {manifest.task_version} of the task."
        )
    judge.check(task)

"""What `score` and `judge-check` do with their options."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import click
from rich.markup import escape

from kamebench.cli.console import Reporter, console, table
from kamebench.cli.summary import number, with_interval
from kamebench.errors import BadConfig, UserError
from kamebench.judge import open_judge, score_run
from kamebench.judge.ablations import BESIDE, LADDER, Ladder, ablate
from kamebench.judge.asking import Asker
from kamebench.judge.base import Judge, References
from kamebench.judge.check import JudgeCheck, check_judge, keep
from kamebench.judge.pairwise import PairFile, compare_runs
from kamebench.judge.score import estimate_run
from kamebench.llm import open_backend
from kamebench.records import VerdictFile, What
from kamebench.report import published
from kamebench.stats.aggregates import score_aggregates
from kamebench.store import Run, open_run
from kamebench.tasks import Task, load_task

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ScoreOptions:
    """The options of `kamebench score`, as named there."""

    path: Path
    judge: str | None
    judge_url: str | None
    what: What
    ablations: bool
    pairwise: Path | None
    references: References | None
    repeats: int
    preset: Literal["published"] | None
    speech_aware: bool
    no_cache: bool
    max_cost: float | None
    dry_run: bool
    root: Path | None
    as_json: bool


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """The options of `kamebench judge-check`, as named there."""

    judge: str
    judge_url: str | None
    task_name: str
    limit: int
    references: References | None
    repeats: int
    preset: Literal["published"] | None
    speech_aware: bool
    max_cost: float | None
    seed: int
    run: Path | None
    root: Path | None
    as_json: bool


def score(options: ScoreOptions) -> None:
    """Score the run and show the result."""
    if options.ablations and (options.pairwise is not None or options.what != "spoken"):
        raise BadConfig("--ablations judges every text of a run: leave --what and --pairwise out.")
    run = open_run(options.path)
    task = load_task(run.manifest.task, options.root)
    judge = open_judge(
        options.judge or own_judge(run),
        preset=options.preset,
        speech_aware=options.speech_aware,
        url=options.judge_url,
        use_cache=not options.no_cache,
        max_cost=options.max_cost,
    )
    if options.dry_run:
        _show_estimate(run, judge, task, options)
    elif options.pairwise is not None:
        other = open_run(options.pairwise)
        file = _carry_out(
            judge,
            lambda progress: compare_runs(
                run,
                other,
                judge,
                task=task,
                what=options.what,
                references=options.references,
                progress=progress,
            ),
        )
        _show_pairs(file, options.as_json)
    elif options.ablations:
        _show_ladder(run, task, _ablated(run, task, judge, options), options.as_json)
    else:
        verdicts = _carry_out(
            judge,
            lambda progress: score_run(
                run,
                judge,
                task=task,
                what=options.what,
                references=options.references,
                repeats=options.repeats,
                progress=progress,
            ),
        )
        _show_scores(options.path, verdicts, judge, options.as_json)


def check(options: CheckOptions) -> None:
    """Check the judge and show the result."""
    judge = open_judge(
        options.judge,
        preset=options.preset,
        speech_aware=options.speech_aware,
        url=options.judge_url,
        max_cost=options.max_cost,
    )
    task = load_task(options.task_name, options.root)
    run = open_run(options.run) if options.run is not None else None
    found = _carry_out(
        judge,
        lambda progress: check_judge(
            judge,
            task,
            limit=options.limit,
            references=options.references,
            repeats=options.repeats,
            seed=options.seed,
            progress=progress,
        ),
    )
    if run is not None:
        keep(found, run)
    _show_check(found, options.as_json)


def own_judge(run: Run) -> str:
    """The judge that the run was made with.

    Raises:
        UserError: it was made without one.
    """
    name = run.manifest.configuration.get("plan", {}).get("judge", "none")
    if name == "none":
        raise UserError(f"{run.path}: was made without a judge. Name one with --judge.")
    return str(name)


def _carry_out(judge: Judge, work: Callable[[Reporter], Awaitable[T]]) -> T:
    async def whole() -> T:
        progress = Reporter()
        try:
            with progress:
                return await work(progress)
        finally:
            await judge.aclose()

    return asyncio.run(whole())


def _ablated(run: Run, task: Task, judge: Judge, options: ScoreOptions) -> Ladder:
    name = run.manifest.backend
    url = run.manifest.configuration.get("plan", {}).get("backend_url")

    def open_own() -> Any:
        if name is None:
            raise UserError(f"{run.path}: was made without a back-end, so there is none to ask.")
        return open_backend(name, url=url, max_cost=options.max_cost)

    async def work(progress: Reporter) -> Ladder:
        backend = Asker(open_own)
        try:
            return await ablate(
                run,
                judge,
                task=task,
                backend=backend,
                references=options.references,
                repeats=options.repeats,
                progress=progress,
            )
        finally:
            await backend.aclose()

    return _carry_out(judge, work)


def _show_estimate(run: Run, judge: Judge, task: Task, options: ScoreOptions) -> None:
    whats = (*LADDER, *BESIDE) if options.ablations else (options.what,)
    rows: list[dict[str, Any]] = []
    for what in whats:
        found = estimate_run(
            run, judge, task=task, what=what, references=options.references, repeats=options.repeats
        )
        rows += [{"what": what, **asdict(row)} for row in found]
    if options.as_json:
        click.echo(json.dumps({"run": str(run.path), "judge": judge.name, "estimate": rows}))
    elif rows:
        console.print(table(rows))
    else:
        console.print(f"'{judge.name}' asks nobody: it costs nothing.")


def _show_scores(path: Path, file: VerdictFile, judge: Judge, as_json: bool) -> None:
    made = score_aggregates(open_run(path).table(file.name))
    if as_json:
        result = file.model_dump(mode="json") | {"aggregates": [row.model_dump(mode="json") for row in made]}
        click.echo(json.dumps(result | {"usage": judge.usage()}))
        return
    console.print(f"{escape(file.name)}: {escape(str(path))}", soft_wrap=True)
    if open_run(path).manifest.status != "complete":
        _warn((f"the run is not complete. Finish it: kamebench run --resume {path}",))
    console.print(
        table(
            [
                {"category": row.group, "score": with_interval(row), "n": row.n, "missing": row.n_missing}
                for row in made
            ]
        )
    )
    if not file.comparable_with_llm_judge:
        console.print("Not comparable with scores of a language model as judge.")
    if agreement := file.summary.get("agreement"):
        console.print(f"Agreement (Krippendorff's alpha): {number(agreement['krippendorff_alpha'])}")
    if (spread := file.summary.get("repeat_sd")) is not None:
        console.print(f"Spread of repeated verdicts (standard deviation): {number(spread)} points")
    _warn(file.warnings)


def _show_ladder(run: Run, task: Task, ladder: Ladder, as_json: bool) -> None:
    known = published.read()
    figures = [figure for figure in known.figure if figure.what != "spoken"]
    fits = known.fit(task.name, ladder.comparable_with_llm_judge)
    if as_json:
        result = ladder.model_dump(mode="json")
        result["published"] = [figure.model_dump(mode="json") for figure in figures] if fits else []
        click.echo(json.dumps(result))
        return
    console.print(f"{escape(str(run.path))}, judged by {escape(ladder.judge)}")
    rows = [
        {"text": what, **{row.group: with_interval(row) for row in ladder.scores[what]}}
        for what in (*LADDER, *BESIDE)
    ]
    if fits:
        groups = list(rows[0])[2:]
        rows += [
            {"text": f"published: {figure.label}", "overall": number(figure.score)}
            | {group: number(figure.categories.get(group)) for group in groups}
            for figure in figures
        ]
    console.print(table(rows))
    console.print(
        table(
            [
                {
                    "from": step.start,
                    "to": step.to,
                    "what lies between": step.between,
                    "points": number(step.difference),
                    "95 %": "-" if step.low is None else f"{number(step.low)} to {number(step.high)}",
                    "n": step.n,
                    "missing": step.n_missing,
                }
                for step in ladder.steps
            ]
        )
    )


def _show_pairs(file: PairFile, as_json: bool) -> None:
    if as_json:
        click.echo(file.model_dump_json())
        return
    console.print(f"{file.this_run} against {file.other_run}, judged by {escape(file.judge)}")
    console.print(table([{"win rate": with_interval(file.win_rate), **file.counts}]))
    shares = {name: number(value) for name, value in file.position.items() if name != "turns"}
    console.print(
        f"Position: decided alike in both orders {shares['consistent']}, the first both times "
        f"{shares['first_both_times']}, the second both times {shares['second_both_times']}"
    )
    _warn(file.warnings)


def _show_check(found: JudgeCheck, as_json: bool) -> None:
    if as_json:
        click.echo(found.model_dump_json())
        return
    console.print(f"{escape(found.judge)} on {found.n_turns} turns of {found.task}")
    console.print(
        table(
            [
                {"answer": kind, "mean score": number(mean), "missing": found.missing[kind]}
                for kind, mean in found.means.items()
            ]
        )
    )
    console.print(
        table(
            [
                {
                    "better": row.better,
                    "worse": row.worse,
                    "wrong": f"{row.violations} of {row.n}",
                    "counts as wrong": "not higher" if row.strict else "lower",
                }
                for row in found.violations
            ]
        )
    )
    for text, value in (
        ("spread of repeated verdicts (standard deviation)", found.repeat_sd),
        ("length bias: rambling minus reference", found.length_bias),
        ("lost for every 10 % of words wrong", found.noise_slope),
        ("won by pleading with the judge", found.pleading_gain),
    ):
        console.print(f"{text}: {number(value)} points")


def _warn(warnings: tuple[str, ...]) -> None:
    for warning in warnings:
        console.print(f"[yellow]Warning:[/] {escape(warning)}")

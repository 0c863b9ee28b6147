"""What `score` and `judge-check` do with their options."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import click

from kamebench.cli.console import Reporter, console, table
from kamebench.errors import UserError
from kamebench.judge import open_judge, score_run
from kamebench.judge.base import References
from kamebench.records import VerdictFile, What
from kamebench.stats.aggregates import score_aggregates
from kamebench.store import Run, open_run
from kamebench.tasks import load_task


def score(
    *,
    path: Path,
    judge: str | None,
    what: What,
    references: References | None,
    repeats: int,
    root: Path | None,
    as_json: bool,
) -> None:
    """Score the run at `path` and show the result."""
    run = open_run(path)
    task = load_task(run.manifest.task, root)
    opened = open_judge(judge or own_judge(run))

    async def work() -> VerdictFile:
        try:
            with Reporter() as progress:
                return await score_run(
                    run,
                    opened,
                    task=task,
                    what=what,
                    references=references,
                    repeats=repeats,
                    progress=progress,
                )
        finally:
            await opened.aclose()

    show(path, asyncio.run(work()), as_json)


def own_judge(run: Run) -> str:
    """The judge that the run was made with.

    Raises:
        UserError: it was made without one.
    """
    plan = run.manifest.configuration.get("plan", {})
    name = plan.get("judge", "none")
    if name == "none":
        raise UserError(f"{run.path}: was made without a judge. Name one with --judge.")
    return str(name)


def show(path: Path, file: VerdictFile, as_json: bool) -> None:
    """A score file as a table by category, or as JSON."""
    made = score_aggregates(open_run(path).table(file.name))
    if as_json:
        result = file.model_dump(mode="json") | {"aggregates": [row.model_dump(mode="json") for row in made]}
        click.echo(json.dumps(result))
        return
    rows: list[dict[str, Any]] = [
        {
            "category": row.group,
            "score": "-" if row.value is None else f"{row.value:.2f}",
            "95 %": "-" if row.low is None else f"{row.low:.2f} to {row.high:.2f}",
            "n": row.n,
            "missing": row.n_missing,
        }
        for row in made
    ]
    console.print(f"{file.name}: {path}")
    console.print(table(rows))
    if not file.comparable_with_llm_judge:
        console.print("Not comparable with scores of a language model as judge.")
    for warning in file.warnings:
        console.print(f"Warning: {warning}", markup=False)

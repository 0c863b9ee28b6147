"""From the options of `run` and `demo` to a plan, and from a run to what the terminal shows."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from kamebench import runner, store
from kamebench.cli import summary
from kamebench.cli.console import Reporter, console
from kamebench.clock import Pace
from kamebench.errors import BadConfig
from kamebench.judge import default_judge
from kamebench.systems import load_system_file
from kamebench.tasks import load_task, select


def start_run(  # noqa: PLR0913 one parameter an option of the command
    *,
    system_name: str = "cascade",
    backend: str | None = None,
    backend_url: str | None = None,
    task_name: str = "spoken-basics",
    judge: str | None = None,
    limit: int | None = None,
    categories: tuple[str, ...] = (),
    pace: Pace | None = None,
    sessions: int = 1,
    seed: int = 0,
    voice: str = "piper:joe",
    recogniser: str = "faster-whisper:tiny.en",
    no_wait: bool = False,
    settings: tuple[str, ...] = (),
    record_to: Path | None = None,
    results: Path = Path("results"),
    root: Path | None = None,
    as_json: bool = False,
) -> store.Run:
    """Make the plan, carry it out and show the result."""
    file = load_system_file(system_name, root)
    file = file.model_copy(update={"options": {**file.options, **dict(_setting(text) for text in settings)}})
    task = load_task(task_name, root)
    questions = select(task, limit=limit, categories=categories, seed=seed)
    plan = runner.RunPlan(
        system=file,
        backend=backend or file.backend,
        backend_url=backend_url,
        task=task_name,
        questions=tuple(question.id for question in questions),
        pace=pace,
        seed=seed,
        sessions=sessions,
        wait=not no_wait,
        voice=voice,
        recogniser=recogniser,
        judge=judge or default_judge(task),
        record_to=str(record_to) if record_to else None,
    )
    with Reporter() as progress:
        run = asyncio.run(runner.start(plan, results, root, progress))
    _show(run, as_json)
    return run


def resume_run(folder: Path, root: Path | None, retry_faults: bool, as_json: bool) -> None:
    with Reporter() as progress:
        run = asyncio.run(runner.resume(folder, root, progress, retry_faults=retry_faults))
    _show(run, as_json)


def _show(run: store.Run, as_json: bool) -> None:
    if as_json:
        print(json.dumps(summary.as_json(run)))
    else:
        summary.print_run(run, console)


def _setting(text: str) -> tuple[str, Any]:
    """NAME=VALUE; the value is JSON where it can be read as such, else text."""
    name, equals, value = text.partition("=")
    if not equals:
        raise BadConfig(f"--set {text}: expected NAME=VALUE, for example --set hangover_ms=400.")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value

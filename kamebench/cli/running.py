"""From the options of `run` and `demo` to a plan, and from a run to what the terminal shows."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from kamebench import runner, store
from kamebench.cli import summary
from kamebench.cli.console import Reporter, console, table
from kamebench.clock import Pace
from kamebench.errors import BadConfig, WorldFault
from kamebench.judge import default_judge
from kamebench.judge.base import References
from kamebench.plan import RunPlan, estimates
from kamebench.systems import load_system_file
from kamebench.tasks import load_task, select


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of `kamebench run`, as named there."""

    system_name: str = "cascade"
    backend: str | None = None
    backend_url: str | None = None
    task_name: str = "spoken-basics"
    judge: str | None = None
    judge_url: str | None = None
    references: References | None = None
    judge_repeats: int = 1
    preset: Literal["published"] | None = None
    limit: int | None = None
    categories: tuple[str, ...] = ()
    pace: Pace | None = None
    sessions: int = 1
    seed: int = 0
    voice: str = "piper:joe"
    recogniser: str = "faster-whisper:tiny.en"
    no_wait: bool = False
    settings: tuple[str, ...] = ()
    record_to: Path | None = None
    max_cost: float | None = None
    results: Path = Path("results")
    root: Path | None = None
    as_json: bool = False

    def plan(self) -> RunPlan:
        """The plan of a new run."""
        file = load_system_file(self.system_name, self.root)
        changed = dict(_setting(text) for text in self.settings)
        task = load_task(self.task_name, self.root)
        questions = select(task, limit=self.limit, categories=self.categories, seed=self.seed)
        return RunPlan(
            system=file.model_copy(update={"options": {**file.options, **changed}}),
            backend=file.backend if self.backend is None else self.backend,
            backend_url=self.backend_url,
            task=self.task_name,
            questions=tuple(question.id for question in questions),
            pace=self.pace,
            seed=self.seed,
            sessions=self.sessions,
            wait=not self.no_wait,
            voice=self.voice,
            recogniser=self.recogniser,
            judge=default_judge(task) if self.judge is None else self.judge,
            judge_url=self.judge_url,
            preset=self.preset,
            references=self.references,
            judge_repeats=self.judge_repeats,
            record_to=str(self.record_to) if self.record_to else None,
            max_cost=self.max_cost,
        )


def start_run(options: RunOptions) -> store.Run:
    """Make the plan, carry it out and show the result."""
    plan = options.plan()
    with Reporter() as progress:
        run = asyncio.run(runner.start(plan, options.results, options.root, progress))
    _show(run, options.as_json)
    return run


def resume_run(folder: Path, options: RunOptions, retry_faults: bool) -> None:
    """Bring a stopped run to its end; of the options only --root, --max-cost and --json count."""
    with Reporter() as progress:
        run = asyncio.run(
            runner.resume(
                folder, options.root, progress, retry_faults=retry_faults, max_cost=options.max_cost
            )
        )
    _show(run, options.as_json)


def dry_run(options: RunOptions) -> None:
    """Show what a run would ask and cost."""
    found = estimates(options.plan(), options.root)
    if options.as_json:
        print(json.dumps({name: asdict(cost) for name, cost in found.items()}))
    elif found:
        rows: list[dict[str, Any]] = [
            {
                "what": name,
                "requests": cost.requests,
                "tokens in": cost.input_tokens,
                "tokens out": cost.output_tokens,
                "US dollars": summary.number(cost.usd),
                "price": cost.reason,
            }
            for name, cost in found.items()
        ]
        console.print(table(rows))
    else:
        console.print("Nothing would be asked of a language model.")


def _show(run: store.Run, as_json: bool) -> None:
    """Show the result.

    Raises:
        WorldFault: every turn faulted, so that nothing was measured.
    """
    if as_json:
        print(json.dumps(summary.as_json(run)))
    else:
        summary.print_run(run, console)
    turns = run.turns
    if turns and all(turn.fault is not None for turn in turns):
        fault = turns[0].fault
        assert fault is not None
        raise WorldFault(
            f"every turn faulted: {fault.party}: {fault.message} The run is kept; when that is mended, play "
            f"them again: kamebench run --resume {run.path} --retry-faults"
        )


def _setting(text: str) -> tuple[str, Any]:
    """NAME=VALUE; the value is JSON where it can be read as such, else text."""
    name, equals, value = text.partition("=")
    if not equals:
        raise BadConfig(f"--set {text}: expected NAME=VALUE, for example --set hangover_ms=400.")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value

"""What `kamebench list` shows: one dict a row, the same for the terminal and for JSON."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kamebench.store import Run

Rows = list[dict[str, Any]]


def rows_of(kind: str, root: Path | None, results: Path) -> Rows:
    """The rows of one kind ("systems", "tasks", "runs", ...)."""
    if kind == "systems":
        return _systems(root)
    if kind == "tasks":
        return _tasks(root)
    if kind == "runs":
        return _runs(results)
    return _OTHERS[kind]()


def _systems(root: Path | None) -> Rows:
    from kamebench.systems import list_systems, load_system_file

    files = [load_system_file(name, root) for name in list_systems(root)]
    return [{"name": f.name, "back-end": f.backend or "-", "description": f.description} for f in files]


def _tasks(root: Path | None) -> Rows:
    from kamebench.tasks import list_tasks

    return [dict(row) for row in list_tasks(root)]


def _runs(results: Path) -> Rows:
    from kamebench.store import find_runs

    return [_run(run) for run in find_runs(results)]


def _run(run: Run) -> dict[str, Any]:
    from kamebench.errors import BadRun

    path = str(run.path)
    try:
        manifest = run.manifest
    except BadRun as error:
        return {"label": "", "task": "", "started": "", "status": f"unreadable: {error}", "run": path}
    return {
        "label": manifest.label,
        "task": f"{manifest.task}@{manifest.task_version}",
        "started": manifest.started_at[:16].replace("T", " "),
        "status": "complete" if manifest.status == "complete" else "running or stopped",
        "run": path,
    }


def _backends() -> Rows:
    from kamebench.llm import BACKENDS

    return [dict(row) for row in BACKENDS.rows()]


def _judges() -> Rows:
    from kamebench.judge import JUDGES

    models = {"name": "any back-end's name; several with commas are a panel", "extra": "the back-end's"}
    return [*(dict(row) for row in JUDGES.rows()), models, {"name": "none", "extra": "-"}]


def _recognisers() -> Rows:
    from kamebench.asr import RECOGNISERS

    return [dict(row) for row in RECOGNISERS.rows()]


def _voices() -> Rows:
    from kamebench.speech import ENGINES

    return [dict(row) for row in ENGINES.rows()]


_OTHERS: dict[str, Callable[[], Rows]] = {
    "backends": _backends,
    "judges": _judges,
    "recognisers": _recognisers,
    "voices": _voices,
}

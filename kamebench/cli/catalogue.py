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
    return [{"name": name} for name in _NAMES[kind]()]


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

    row: dict[str, Any] = {
        "run": str(run.path),
        "label": "",
        "task": "",
        "started": "",
        "status": "unreadable",
    }
    try:
        manifest = run.manifest
    except BadRun:
        return row
    return row | {
        "label": manifest.label,
        "task": f"{manifest.task}@{manifest.task_version}",
        "started": manifest.started_at,
        "status": manifest.status,
    }


def _backends() -> list[str]:
    from kamebench.llm import BACKENDS

    return BACKENDS.names()


def _judges() -> list[str]:
    from kamebench.judge import JUDGES

    return JUDGES.names()


def _recognisers() -> list[str]:
    from kamebench.asr import RECOGNISERS

    return RECOGNISERS.names()


def _voices() -> list[str]:
    from kamebench.speech import ENGINES

    return ENGINES.names()


_NAMES: dict[str, Callable[[], list[str]]] = {
    "backends": _backends,
    "judges": _judges,
    "recognisers": _recognisers,
    "voices": _voices,
}

"""All runs of a system over time, as rows and as a chart."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kamebench.errors import BadConfig, BadRun, UnknownName
from kamebench.records import Aggregate
from kamebench.stats import latency_summary, score_aggregates
from kamebench.store import Run, find_runs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SUFFIXES = (".svg", ".png", ".pdf")


def runs_of(system: str, results: Path, task: str | None = None) -> list[Run]:
    """Runs of a system, oldest first; incomplete ones included.

    Raises:
        UnknownName: no run of that system under `results`.
    """
    known: set[str] = set()
    found: list[Run] = []
    for run in find_runs(results):
        name = run.path.parts[-3]  # a damaged run of another system is not looked into
        known.add(name)
        if name == system and task in (None, run.path.parts[-2].partition("@")[0]):
            found.append(run)
    if not found:
        raise UnknownName("stored run of a system", system, known)
    return found


def row_of(run: Run) -> dict[str, Any]:
    """One run: who, when, which commit, and its two headline figures as aggregates.

    `state` is "good", or says why the figures are absent.
    """
    try:
        manifest = run.manifest
    except BadRun as error:
        return _unreadable(run, str(error))
    row: dict[str, Any] = {
        "run": manifest.run_id,
        "started": manifest.started_at,
        "label": manifest.label,
        "task": f"{manifest.task}@{manifest.task_version}",
        "score_name": manifest.primary_score,
        "kamebench": manifest.kamebench_version,
        "commit": (manifest.git_commit or "")[:10] + ("+" if manifest.git_dirty else ""),
        "score": None,
        "latency": None,
        "faults": None,
        "state": "good",
    }
    try:
        run.check()
        table = run.table()
        latency = latency_summary(table)
    except BadRun as error:
        return row | {"state": str(error)}
    faults = latency.outcomes["fault"]
    return row | {"score": score_aggregates(table)[0], "latency": latency.p50, "faults": faults}


def _unreadable(run: Run, why: str) -> dict[str, Any]:
    unknown = dict.fromkeys(("score_name", "kamebench", "commit", "score", "latency", "faults"))
    task = run.path.parts[-2]
    return {"run": run.path.name, "started": "", "label": "", "task": task, "state": why} | unknown


def draw(rows: list[dict[str, Any]], title: str, path: Path) -> None:
    """Score and median latency against the run, with intervals; one line a task, judge and back-end.

    Runs of different tasks, versions, judges or back-ends are not joined: their numbers differ in meaning.

    Raises:
        BadConfig: a file type that is none of SUFFIXES.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise BadConfig(f"{path}: charts are written as {', '.join(SUFFIXES)}. Name the file so.")
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    good = [row for row in rows if row["state"] == "good"]
    figure = Figure(figsize=(max(6.0, 0.6 * len(good) + 3), 5.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes: list[Axes] = list(figure.subplots(2, 1, sharex=True))
    for axis, key, label in (
        (axes[0], "score", "score (1 to 10)"),
        (axes[1], "latency", "median latency, ms"),
    ):
        _series(axis, good, key)
        axis.set_ylabel(label)
        axis.grid(alpha=0.3)
    axes[0].set_title(title)
    axes[0].legend(fontsize="small")
    ticks = [f"{row['started'][:10]}\n{row['kamebench']}\n{row['commit'] or 'no commit'}" for row in good]
    axes[1].set_xticks(range(len(good)), ticks, rotation=45, ha="right", fontsize="small")
    path.parent.mkdir(parents=True, exist_ok=True)
    # Fixed salt and no date: the same runs give the same bytes.
    with mpl.rc_context({"svg.hashsalt": "kamebench"}):
        metadata = {"Date": None} if path.suffix.lower() == ".svg" else None
        figure.savefig(path, dpi=150, metadata=metadata)


def _series(axis: Axes, rows: list[dict[str, Any]], key: str) -> None:
    groups: dict[str, list[tuple[int, Aggregate]]] = {}
    for index, row in enumerate(rows):
        figure: Aggregate | None = row[key]
        if figure is not None and figure.value is not None:
            name = f"{row['label']}, {row['task']}, {row['score_name']}"
            groups.setdefault(name, []).append((index, figure))
    for name, points in groups.items():
        at = [index for index, _ in points]
        values = [figure.value or 0.0 for _, figure in points]
        below = [v - (f.low if f.low is not None else v) for v, (_, f) in zip(values, points, strict=True)]
        above = [(f.high if f.high is not None else v) - v for v, (_, f) in zip(values, points, strict=True)]
        axis.errorbar(at, values, yerr=[below, above], marker="o", capsize=3, label=name)

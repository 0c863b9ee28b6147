"""What a run looks like at the terminal, and as one JSON object."""

from __future__ import annotations

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from kamebench.records import Aggregate
from kamebench.stats import LatencySummary, latency_summary, score_aggregates
from kamebench.store import Run

SHOWN_FAULTS = 5


def number(value: float | None, digits: int = 2, unit: str = "") -> str:
    return "-" if value is None else f"{value:.{digits}f}{unit}"


def with_interval(a: Aggregate, digits: int = 2) -> str:
    """'6.43 [5.9, 7.0]', or the bare value where there is no interval."""
    if a.value is not None and a.low is not None and a.high is None:
        return f"{number(a.value, digits)} [{number(a.low, digits)}, -]"
    if a.low is None or a.high is None:
        return number(a.value, digits)
    return f"{number(a.value, digits)} [{number(a.low, digits)}, {number(a.high, digits)}]"


def as_json(run: Run) -> dict[str, Any]:
    """The run's aggregates; everything a script wants without reading the files."""
    table, manifest = run.table(), run.manifest
    summary = latency_summary(table)
    return {
        "run": str(run.path),
        "label": manifest.label,
        "task": f"{manifest.task}@{manifest.task_version}",
        "score_name": manifest.primary_score,
        "score": [a.model_dump() for a in score_aggregates(table)],
        "outcomes": summary.outcomes,
        "in_no_latency": summary.excluded,
        "latency_ms": {name: getattr(summary, name).model_dump() for name in ("p50", "p90", "p95")},
        "faults": [f"{t.question_id}/{t.turn}: {t.measure.onset.reason}" for t in run.turns if t.fault],
    }


def print_run(run: Run, console: Console) -> None:
    """Score by category, latency and outcomes of one run."""
    table, manifest = run.table(), run.manifest
    summary = latency_summary(table)
    console.print(
        f"\n[bold]{manifest.label}[/] on {manifest.task}@{manifest.task_version} ({manifest.pace} pace)"
    )
    if manifest.role != "system":
        console.print(f"[dim]{_ROLE[manifest.role]}")
    if manifest.primary_score is not None:
        console.print(_scores(score_aggregates(table), manifest.primary_score))
    console.print(_latency(summary))
    if summary.excluded:
        counts = ", ".join(f"{n} by {why}" for why, n in summary.excluded.items())
        console.print(f"[yellow]in no latency figure[/]: {counts} of {summary.n_turns} turns")
    faults = [t for t in run.turns if t.fault]
    for t in faults[:SHOWN_FAULTS]:
        assert t.fault is not None
        console.print(
            f"[yellow]fault[/] {t.question_id}/{t.turn}: {t.fault.party}: {escape(t.fault.message)}"
        )
    if len(faults) > SHOWN_FAULTS:
        console.print(f"[yellow]and {len(faults) - SHOWN_FAULTS} more[/]")
    console.print(f"[dim]{escape(str(run.path))}", soft_wrap=True)


_ROLE = {
    "floor": "the floor: a small embedded model that shows everything works; its answers are mostly wrong",
    "topline": "the topline: speaks the task's own reference answers; shows what speech and timing cost",
}


def _scores(aggregates: list[Aggregate], name: str) -> Table:
    made = Table(box=SIMPLE_HEAD, pad_edge=False, title=f"score, 1 to 10 ({name})", title_justify="left")
    made.add_column("category")
    for title in ("mean [95 %]", "turns", "missing"):
        made.add_column(title, justify="right")
    for a in aggregates:
        made.add_row(a.group, with_interval(a), str(a.n), str(a.n_missing))
    bare = [a for a in aggregates if a.value is not None and a.low is None]
    if bare:
        made.caption, made.caption_justify = bare[0].reason, "left"
    return made


def _latency(s: LatencySummary) -> Table:
    made = Table(
        box=SIMPLE_HEAD, pad_edge=False, title="onset latency, ms after the user's end", title_justify="left"
    )
    outcomes = [name for name, n in s.outcomes.items() if n]
    for title in ("p50 [95 %]", "p90", "p95", "talk-over", *outcomes):
        made.add_column(title, justify="right")
    talk_over = "-" if s.talk_over.value is None else f"{s.talk_over.value:.0%}"
    quantiles = (with_interval(s.p50, 0), number(s.p90.value, 0), number(s.p95.value, 0), talk_over)
    made.add_row(*quantiles, *(str(s.outcomes[name]) for name in outcomes))
    return made

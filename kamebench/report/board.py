"""The leaderboard's data: runs put into groups that may be compared, a row a system x back-end.

No HTML here. Every interval comes from `kamebench.stats`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from kamebench.errors import BadRun, KamebenchError
from kamebench.records import Aggregate
from kamebench.stats import LatencySummary, latency_summary, score_aggregates
from kamebench.store import Run

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Entry:
    """A run with its aggregates.

    Attributes:
        run: the stored run. slug: folder name of its pages, unique and safe in a URL.
        score: `overall`. categories: category -> score.
        latency: of all turns.
    """

    run: Run
    slug: str
    table: pd.DataFrame = field(repr=False, compare=False)
    score: Aggregate
    categories: dict[str, Aggregate]
    latency: LatencySummary

    @property
    def label(self) -> str:
        return self.run.manifest.label

    @property
    def role(self) -> str:
        return self.run.manifest.role

    @property
    def backend(self) -> str:
        return self.run.manifest.backend or "none"

    @property
    def score_name(self) -> str | None:
        return self.run.manifest.primary_score

    @property
    def judge(self) -> str:
        file = self.run.scores.get(self.score_name or "")
        if file is None:
            return "not scored"
        model = file.settings.get("model")
        return f"{file.judge} ({model})" if model else file.judge

    @property
    def llm_judge(self) -> bool:
        file = self.run.scores.get(self.score_name or "")
        return file is not None and file.comparable_with_llm_judge and file.judge != "facts"

    @property
    def warnings(self) -> tuple[str, ...]:
        """What its score is to be read with, such as a judge of the back-end's own family."""
        file = self.run.scores.get(self.score_name or "")
        return file.warnings if file is not None else ()

    @property
    def cost(self) -> float | None:
        """US dollars, where the run's usage states them."""
        return self.run.manifest.cost_usd

    @property
    def median_s(self) -> float | None:
        return None if self.latency.p50.value is None else self.latency.p50.value / 1000

    @property
    def rankable(self) -> bool:
        """Whether the row competes: a system, not a floor or a topline."""
        return self.role == "system"


@dataclass(frozen=True)
class Row:
    """A system x back-end: its latest run and the older ones, newest first."""

    entry: Entry
    older: tuple[Entry, ...]

    @property
    def n_runs(self) -> int:
        return 1 + len(self.older)


@dataclass(frozen=True)
class Group:
    """Rows that were measured alike and may be ranked together, best score first."""

    slug: str
    rows: tuple[Row, ...]

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        return tuple(row.entry for row in self.rows)

    @property
    def first(self) -> Entry:
        return self.rows[0].entry

    @property
    def task(self) -> str:
        return self.first.run.manifest.task

    @property
    def version(self) -> str:
        return self.first.run.manifest.task_version

    @property
    def judge(self) -> str:
        return self.first.judge

    @property
    def llm_judge(self) -> bool:
        return self.first.llm_judge

    @property
    def references(self) -> str:
        file = self.first.run.scores.get(self.first.score_name or "")
        return str(file.settings.get("references", "")) if file else ""

    @property
    def n_questions(self) -> int:
        return len(self.first.run.manifest.questions)

    @property
    def n_turns(self) -> int:
        return self.first.run.manifest.n_turns

    @cached_property
    def categories(self) -> tuple[str, ...]:
        names = {name: None for entry in self.entries for name in entry.categories}
        return tuple(names)

    @property
    def title(self) -> str:
        return f"{self.task}@{self.version} · {self.judge}"

    def best_under(self, limit_s: float) -> Entry | None:
        """The highest score among competing rows whose median latency is below the limit, in seconds."""
        inside = [
            e
            for e in self.entries
            if e.rankable and e.score.value is not None and e.median_s is not None and e.median_s < limit_s
        ]
        return max(inside, key=lambda e: (e.score.value or 0.0, -(e.median_s or 0.0)), default=None)

    @property
    def soonest(self) -> Entry | None:
        """The row with the lowest median latency, whether it competes or not."""
        placed = [e for e in self.entries if e.median_s is not None]
        return min(placed, key=lambda e: (e.median_s or 0.0, -(e.score.value or 0.0)), default=None)

    @cached_property
    def front(self) -> tuple[Entry, ...]:
        """The Pareto front of competing rows: none other is both better and sooner. Soonest first."""
        return pareto([e for e in self.entries if e.rankable])


@dataclass(frozen=True)
class Board:
    """Everything on the first page. `skipped`: (run, reason) of runs that could not be shown."""

    groups: tuple[Group, ...]
    skipped: tuple[tuple[str, str], ...]

    @property
    def entries(self) -> list[Entry]:
        return [e for group in self.groups for row in group.rows for e in (row.entry, *row.older)]


def pareto(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """Entries for which no other one has a higher score at no more latency."""
    placed = [e for e in entries if e.score.value is not None and e.median_s is not None]
    placed.sort(key=lambda e: (e.median_s or 0.0, -(e.score.value or 0.0), e.slug))
    front: list[Entry] = []
    best = float("-inf")
    for entry in placed:
        if entry.score.value is not None and entry.score.value > best:
            front.append(entry)
            best = entry.score.value
    return tuple(front)


def build(runs: Sequence[Run]) -> Board:
    """Read runs, leave out those that are not whole or were edited, and group what may be compared."""
    entries: list[Entry] = []
    skipped: list[tuple[str, str]] = []
    for run in runs:
        name = "/".join(run.path.parts[-3:])
        try:
            entry = read_entry(run)
            run.check()
            entries.append(entry)
        except KamebenchError as error:
            skipped.append((name, str(error).replace(str(run.path), f"results/{name}")))
    return Board(group(entries), tuple(skipped))


def read_entry(run: Run) -> Entry:
    """A run with its aggregates.

    Raises:
        BadRun: not complete, not measured, or files that cannot be read.
    """
    manifest = run.manifest
    if manifest.status != "complete":
        raise BadRun(f"the run is not complete. Finish it with: kamebench run --resume {run.path}")
    if run.measures is None:
        raise BadRun(f"the run was never measured. Use: kamebench measure {run.path}")
    if not run.turns:
        raise BadRun(f"the run holds no session. Finish it with: kamebench run --resume {run.path}")
    table = run.table()
    overall, *categories = score_aggregates(table)
    return Entry(
        run=run,
        slug=slug_of(f"{manifest.system}-{manifest.task}-{manifest.run_id}", str(run.path.parts[-3:])),
        table=table,
        score=overall,
        categories={a.group: a for a in categories},
        latency=latency_summary(table),
    )


def group(entries: Sequence[Entry]) -> tuple[Group, ...]:
    """Split runs by everything that changes what a number means; groups with most rows first."""
    buckets: dict[str, list[list[Entry]]] = {}
    for entry in entries:
        alike = buckets.setdefault(alike_key(entry), [])
        home = next((b for b in alike if _same_audio(b[0], entry)), None)
        if home is None:
            alike.append([entry])
        else:
            home.append(entry)
    groups = [_group(f"{key}#{i}", b) for key, bs in buckets.items() for i, b in enumerate(bs)]
    return tuple(sorted(groups, key=lambda g: (not g.llm_judge, -len(g.rows), -g.n_turns, g.slug)))


def alike_key(entry: Entry) -> str:
    """What must agree for two runs to be ranked together, as canonical JSON."""
    manifest = entry.run.manifest
    file = entry.run.scores.get(entry.score_name or "")
    measures = entry.run.measures
    return json.dumps(
        [
            manifest.task,
            manifest.task_version,
            manifest.task_sha256,
            sorted(manifest.questions),
            manifest.pace == "lockstep",
            entry.score_name,
            file.settings if file else None,
            measures.settings if measures else None,
        ],
        sort_keys=True,
        default=str,
    )


def _same_audio(one: Entry, other: Entry) -> bool:
    a, b = one.run.manifest.audio, other.run.manifest.audio
    return all(a[key] == b[key] for key in a.keys() & b.keys())


def _group(key: str, entries: list[Entry]) -> Group:
    by_system: dict[tuple[str, str, str], list[Entry]] = {}
    for entry in entries:
        by_system.setdefault((entry.run.manifest.system, entry.backend, entry.role), []).append(entry)
    rows: list[Row] = []
    for found in by_system.values():
        newest, *older = sorted(
            found, key=lambda e: (e.run.manifest.started_at, e.run.manifest.run_id), reverse=True
        )
        rows.append(Row(newest, tuple(older)))
    rows.sort(key=lambda r: (-(r.entry.score.value or 0.0), r.entry.median_s or 0.0, r.entry.slug))
    first = rows[0].entry.run.manifest
    return Group(slug_of(f"{first.task}-{first.task_version}-{rows[0].entry.judge}", key), tuple(rows))


def slug_of(text: str, unique: str) -> str:
    """A readable name that is safe in a path and a URL, ended by six digits of `unique`'s hash."""
    plain = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:60]
    return f"{plain}-{hashlib.sha256(unique.encode()).hexdigest()[:6]}"

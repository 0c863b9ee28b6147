"""The whole site from stored runs: the same results give the same bytes; only changed runs are rebuilt."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kamebench.errors import BadConfig
from kamebench.report import published
from kamebench.report.board import Board, Entry, Group, build
from kamebench.report.charts import Scatter, scatter
from kamebench.report.comparing import Pair, pairs, write_comparison
from kamebench.report.figures import draw
from kamebench.report.glossary import COLUMNS
from kamebench.report.pages import FOLDER, write_page
from kamebench.report.runpages import AUDIO_FOLDER, STAMP, audio_name, build_run, safe_name, stamp_of
from kamebench.store import find_runs, write_text

WIDE, NARROW = (1080, 460), (390, 400)
DEFAULT_LIMIT_S = 1.0
MADE = "site.txt"
"""Lists the site's own files: what a later build may remove."""
WORKERS_FROM = 3  # runs to build; a pool costs more than it saves below

Progress = Callable[[str, int, int], None]
Job = Callable[[], None]
"""Pages to write; a `partial`, so that a worker's process can take it."""


@dataclass(frozen=True)
class View:
    """A group as the first page shows it."""

    group: Group
    wide: Scatter
    narrow: Scatter
    best: Entry | None
    soonest: Entry | None
    published: bool
    pairs: tuple[Pair, ...]

    @property
    def roles(self) -> bool:
        return any(not e.rankable for e in self.group.entries)


@dataclass(frozen=True)
class Site:
    """What was built. `rebuilt`: runs whose pages were written anew."""

    index: Path
    board: Board
    rebuilt: int
    kept: int


def _quiet(stage: str, done: int, total: int) -> None:
    del stage, done, total


def build_site(results: Path, out: Path, progress: Progress = _quiet, workers: int | None = None) -> Site:
    """Build or bring up to date the site of all complete runs under `results`.

    Args:
        progress: called with the stage, steps done and steps in all.
        workers: processes for the runs' pages; default the number of processors, 4 at most.

    Raises:
        BadConfig: `out` holds a page that kamebench did not make.
    """
    before = _made_before(out)
    board = build(find_runs(results))
    out.mkdir(parents=True, exist_ok=True)
    _assets(out)
    figures = published.read()
    views = [_view(group, figures) for group in board.groups]
    code = code_hash()
    stamps = {entry.slug: stamp_of(entry.run, code) for entry in board.entries}
    planned = {MADE, "index.html", *_static_names(), *_page_names(board, views)}
    _write_list(out, before | planned)  # before the first page: a build that is stopped leaves no strangers
    runs = _run_jobs(board, out, stamps)
    _carry_out([*runs, *_pair_jobs(views, out, stamps)], progress, workers or min(os.cpu_count() or 1, 4))
    drawn = _figures(views, figures, out, progress)
    _index(board, views, figures, out)
    _tidy(out, before, planned | drawn)
    return Site(out / "index.html", board, len(runs), len(board.entries) - len(runs))


def code_hash() -> str:
    """Hash of kamebench's own code: a page is made anew after any change that could shape it."""
    package = FOLDER.parent
    found = hashlib.sha256()
    for path in sorted(package.rglob("*")):
        if path.suffix in (".py", ".html", ".css", ".js", ".svg", ".toml"):
            found.update(path.relative_to(package).as_posix().encode() + path.read_bytes())
    return found.hexdigest()


def _assets(out: Path) -> None:
    (out / "assets").mkdir(exist_ok=True)
    for name in _static_names():
        (out / name).write_bytes((FOLDER / "static" / Path(name).name).read_bytes())


def _static_names() -> list[str]:
    return sorted(f"assets/{path.name}" for path in (FOLDER / "static").iterdir())


def _page_names(board: Board, views: list[View]) -> set[str]:
    """Every page and recording of the runs and their comparisons, relative to the site."""
    names = {f"compare/{pair.slug}.html" for view in views for pair in view.pairs}
    for entry in board.entries:
        folder = f"runs/{entry.slug}"
        names |= {f"{folder}/index.html", f"{folder}/{STAMP}"}
        for question, session in entry.run.sessions.items():
            names.add(f"{folder}/{safe_name(question)}.html")
            names.add(f"{AUDIO_FOLDER}/{audio_name(session)}")
    return names


def _made_before(out: Path) -> set[str]:
    """The files of an earlier build.

    Raises:
        BadConfig: the folder holds somebody else's page, which must not be overwritten.
    """
    made = out / MADE
    if made.is_file():
        return set(made.read_text(encoding="utf-8").splitlines())
    if (out / "index.html").exists():
        raise BadConfig(
            f"{out}: holds an index.html and no {MADE}, so kamebench did not make it. "
            "Choose another folder, or move the page away."
        )
    return set()


def _tidy(out: Path, before: set[str], made: set[str]) -> None:
    """Remove what an earlier build made and this one did not; nobody else's files are touched."""
    for name in before - made:
        path = out / name
        inside = not Path(name).is_absolute() and ".." not in path.parts
        if inside and path.is_file():
            path.unlink()
            if path.parent != out and not any(path.parent.iterdir()):
                path.parent.rmdir()
    _write_list(out, {name for name in made if name == MADE or (out / name).is_file()})


def _write_list(out: Path, names: set[str]) -> None:
    write_text(out / MADE, "\n".join(sorted(names)) + "\n")


def _run_jobs(board: Board, out: Path, stamps: dict[str, str]) -> list[Job]:
    """Runs whose pages are missing or made from something else."""
    jobs: list[Job] = []
    for entry in board.entries:
        folder = out / "runs" / entry.slug
        known = folder / STAMP
        if not known.is_file() or known.read_text(encoding="utf-8").strip() != stamps[entry.slug]:
            jobs.append(partial(build_run, entry.run.path, folder, stamps[entry.slug]))
    return jobs


def _pair_jobs(views: list[View], out: Path, stamps: dict[str, str]) -> list[Job]:
    """Comparisons that are missing or made from something else."""
    jobs: list[Job] = []
    chosen = [pair for view in views for pair in view.pairs]
    for pair in chosen:
        path, a, b = out / "compare" / f"{pair.slug}.html", pair.first, pair.second
        stamp = hashlib.sha256((stamps[a.slug] + stamps[b.slug]).encode()).hexdigest()
        if not path.is_file() or stamp not in path.read_text(encoding="utf-8"):
            jobs.append(partial(write_comparison, path, a.run.path, b.run.path, stamp))
    return jobs


def _carry_out(jobs: list[Job], progress: Progress, workers: int) -> None:
    if len(jobs) < WORKERS_FROM or workers == 1:
        for done, job in enumerate(jobs, start=1):
            job()
            progress("pages", done, len(jobs))
        return
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        waiting = [pool.submit(job) for job in jobs]
        for done, future in enumerate(as_completed(waiting), start=1):
            future.result()
            progress("pages", done, len(jobs))


def _view(group: Group, figures: published.Published) -> View:
    fits = figures.fit(group.task, group.llm_judge)
    shown = figures if fits else None
    return View(
        group=group,
        wide=scatter(group, shown, *WIDE, "wide"),
        narrow=scatter(group, shown, *NARROW, "narrow"),
        best=group.best_under(DEFAULT_LIMIT_S),
        soonest=group.soonest,
        published=fits,
        pairs=pairs(group),
    )


def _figures(views: list[View], figures: published.Published, out: Path, progress: Progress) -> set[str]:
    folder = out / "figures"
    drawn: set[str] = set()
    for done, view in enumerate(views, start=1):
        drawn |= {
            f"figures/{path.name}" for path in draw(view.group, figures if view.published else None, folder)
        }
        progress("figures", done, len(views))
    return drawn


def _index(board: Board, views: list[View], figures: published.Published, out: Path) -> None:
    groups = board.groups
    alone = None
    if not any(view.published for view in views):
        alone = [scatter(None, figures, *size, name) for size, name in ((WIDE, "wide"), (NARROW, "narrow"))]
    write_page(
        out / "index.html",
        "index.html",
        "",
        board=board,
        views=views,
        columns=COLUMNS,
        published=figures,
        published_chart=alone,
        published_categories=list(dict.fromkeys(c for f in figures.figure for c in f.categories)),
        tasks=sorted({f"{g.task}@{g.version}" for g in groups}),
        judges=sorted({g.judge for g in groups}),
        backends=sorted({e.backend for g in groups for e in g.entries}),
        categories=sorted({c for g in groups for c in g.categories}),
    )

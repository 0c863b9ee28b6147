"""Quality against latency as PNG and SVG files for papers and READMEs. Same bytes for the same data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kamebench.records import Aggregate
from kamebench.report.board import Entry, Group
from kamebench.report.charts import Scatter, scatter
from kamebench.report.published import Published

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Okabe and Ito's palette: told apart with every common kind of colour blindness.
COLOURS = {"system": "#0072B2", "floor": "#777777", "topline": "#009E73", "published": "#D55E00"}
SIZE_PX = (640, 420)  # of the layout that places the names
POINTS_PER_PX = 0.7
MARKERS = {"system": "o", "floor": "v", "topline": "^"}


def caption(group: Group) -> str:
    """Task, judge and n, in one sentence."""
    missing = sum(e.score.n_missing for e in group.entries)
    n = sorted({e.score.n for e in group.entries})
    turns = str(n[0]) if len(n) == 1 else f"{n[0]} to {n[-1]}"
    kind = "" if group.llm_judge else "; not comparable with an LLM judge"
    return (
        f"Score (1 to 10) against median onset latency. Task {group.task}@{group.version}, "
        f"judge {group.judge}{kind}. "
        f"n = {turns} judged turns of {group.n_questions} questions a system, {missing} missing in all. "
        "Bars: 95 % intervals over questions. Line: Pareto front."
    )


def draw(group: Group, published: Published | None, folder: Path) -> tuple[Path, ...]:
    """Write `<slug>.svg`, `<slug>.png` and `<slug>.txt` (the caption); returns them."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    folder.mkdir(parents=True, exist_ok=True)
    paths = tuple(folder / f"{group.slug}.{kind}" for kind in ("svg", "png", "txt"))
    settings: dict[Any, Any] = {
        "svg.hashsalt": "kamebench",
        "svg.fonttype": "none",
        "font.family": "DejaVu Sans",
        "font.size": 9,
    }
    with mpl.rc_context(settings):
        figure = Figure(figsize=(6.4, 4.4), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        _axes(axes)
        for entry in group.entries:
            _entry(axes, entry)
        for row in published.figure if published else ():
            if row.latency_s is not None:
                axes.plot(row.latency_s, row.score, "o", mfc="none", mec=COLOURS["published"], ms=7)
        _names(axes, scatter(group, published, *SIZE_PX, "figure"))
        front = [(e.median_s or 0.0, e.score.value or 0.0) for e in group.front]
        if front:
            axes.step(*zip(*front, strict=True), where="post", color="#999999", lw=1, zorder=1)
        figure.supxlabel(_wrapped(caption(group)), fontsize=7, color="#444444", x=0.02, ha="left")
        figure.savefig(paths[0], metadata={"Date": None, "Creator": "kamebench"})
        figure.savefig(paths[1], dpi=160, metadata={"Software": "kamebench"})
    paths[2].write_text(caption(group) + "\n", encoding="utf-8")
    return paths


def _axes(axes: Axes) -> None:
    axes.set_xlabel("median onset latency, s (negative: before the user's end)")
    axes.set_ylabel("score")
    axes.set_ylim(1, 10)
    axes.axvline(0, color="#bbbbbb", lw=0.8, ls="--", zorder=0)
    axes.grid(color="#eeeeee", lw=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def _entry(axes: Axes, entry: Entry) -> None:
    if entry.median_s is None or entry.score.value is None:
        return
    colour = COLOURS[entry.role]
    axes.errorbar(
        entry.median_s,
        entry.score.value,
        xerr=_sides(entry.latency.p50, 1000),
        yerr=_sides(entry.score, 1),
        fmt=MARKERS[entry.role],
        color=colour,
        ms=6,
        lw=1,
        capsize=2,
    )


def _names(axes: Axes, laid: Scatter) -> None:
    """Write the names where the page's picture has them, in its proportions."""
    from matplotlib.patheffects import withStroke

    axes.set_xlim(laid.x.low, laid.x.high)
    for point in laid.points:
        if point.text is None:
            continue
        x, y, anchor = point.text
        axes.annotate(
            point.label.replace("$", r"\$"),
            (laid.x.value(point.x), laid.y.value(point.y)),
            ((x - point.x) * POINTS_PER_PX, (point.y - y) * POINTS_PER_PX),
            textcoords="offset points",
            ha={"start": "left", "middle": "center", "end": "right"}[anchor],
            fontsize=7.5,
            color=COLOURS[point.kind],
            path_effects=[withStroke(linewidth=2.5, foreground="white")],
            zorder=5,
        )


def _sides(a: Aggregate, unit: float) -> list[list[float]] | None:
    if a.value is None or a.low is None or a.high is None:
        return None
    return [[max(a.value - a.low, 0.0) / unit], [max(a.high - a.value, 0.0) / unit]]


def _wrapped(text: str, columns: int = 118) -> str:
    import textwrap

    return "\n".join(textwrap.wrap(text, columns)).replace("$", r"\$")

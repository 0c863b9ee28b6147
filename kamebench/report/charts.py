"""Geometry of the charts on the pages: numbers to SVG coordinates. The templates draw them.

The pages' policy allows no inline style, so that charts carry classes and attributes only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from kamebench.records import Aggregate
from kamebench.report.board import Entry, Group
from kamebench.report.published import Published
from kamebench.stats import ResponseCurve
from kamebench.stats.intervals import Floats

SCORE_RANGE = (1.0, 10.0)
MAX_LABELS = 10
# Where a name may stand about its point: dx, dy, anchor; the first that is free is taken.
PLACES = (
    (11, 4, "start"),
    (-11, 4, "end"),
    (8, -11, "start"),
    (8, 19, "start"),
    (-8, -11, "end"),
    (-8, 19, "end"),
    (0, -12, "middle"),
    (0, 22, "middle"),
)
CHAR_PX = 7.3  # mean width of a character at the labels' size


@dataclass(frozen=True)
class Axis:
    """A linear axis from values to pixels. `ticks`: (pixel, text)."""

    low: float
    high: float
    start_px: float
    end_px: float
    ticks: tuple[tuple[float, str], ...] = ()

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return round(self.start_px + share * (self.end_px - self.start_px), 1)

    def value(self, px: float) -> float:
        """The value at a pixel."""
        return self.low + (px - self.start_px) / (self.end_px - self.start_px) * (self.high - self.low)


def axis(low: float, high: float, start_px: float, end_px: float, n_ticks: int = 6) -> Axis:
    """An axis with round ticks inside [low, high]."""
    step = nice_step((high - low) / n_ticks)
    digits = max(0, -int(np.floor(np.log10(step))))
    bare = Axis(low, high, start_px, end_px)
    values = np.arange(np.ceil(low / step - 1e-9), np.floor(high / step + 1e-9) + 1) * step
    ticks = tuple((bare(float(v)), f"{v + 0.0:.{digits}f}".replace("-0.0", "0.0")) for v in values)
    return Axis(low, high, start_px, end_px, ticks)


def nice_step(rough: float) -> float:
    """The smallest of 1, 2, 5 x 10^k that is not below `rough`."""
    power = 10.0 ** np.floor(np.log10(rough))
    return float(next(m * power for m in (1.0, 2.0, 5.0, 10.0) if m * power >= rough * (1 - 1e-9)))


@dataclass(frozen=True)
class Point:
    """One system in the scatter, in pixels; intervals are (low, high) or None."""

    x: float
    y: float
    label: str
    title: str
    kind: str
    href: str
    x_range: tuple[float, float] | None
    y_range: tuple[float, float] | None
    on_front: bool
    key: str
    text: tuple[float, float, str] | None = None


@dataclass(frozen=True)
class Scatter:
    """A scatter of score against signed median latency in seconds. `front` and `limit_x` in pixels."""

    width: int
    height: int
    x: Axis
    y: Axis
    points: tuple[Point, ...]
    front: str
    zero_x: float
    name: str


def scatter(group: Group | None, published: Published | None, width: int, height: int, name: str) -> Scatter:
    """Lay out the picture of a group, with published figures as hollow points."""
    entries = [
        e for e in (group.entries if group else ()) if e.score.value is not None and e.median_s is not None
    ]
    figures = [f for f in (published.figure if published else ()) if f.latency_s is not None]
    spread = [v for e in entries for v in _seconds(e.latency.p50)] + [f.latency_s or 0.0 for f in figures]
    low, high = min([*spread, -0.2]), max([*spread, 1.0])
    pad = (high - low) * 0.08
    left, bottom = 46, height - 44
    x = axis(low - pad, high + pad, left, width - 14, n_ticks=8 if width > 500 else 5)
    y = axis(*SCORE_RANGE, bottom, 26, n_ticks=9)
    front = group.front if group else ()
    points = [_point(e, x, y, e in front) for e in entries]
    points += [
        Point(
            x=x(figure.latency_s or 0.0),
            y=y(figure.score),
            label=f"{figure.label} (published)",
            title=f"{figure.label}, published: score {figure.score:.2f}, latency {figure.latency_text}",
            kind="published",
            href="#published",
            x_range=None,
            y_range=None,
            on_front=False,
            key="",
        )
        for figure in figures
    ]
    placed = _with_labels(points, x, y)
    return Scatter(width, height, x, y, placed, _front_path(front, x, y), x(0.0), name)


def _seconds(a: Aggregate) -> list[float]:
    return [v / 1000 for v in (a.value, a.low, a.high) if v is not None]


def _point(entry: Entry, x: Axis, y: Axis, on_front: bool) -> Point:
    score, p50 = entry.score, entry.latency.p50
    assert score.value is not None and entry.median_s is not None
    interval = "" if score.low is None else f" [{score.low:.2f}, {score.high:.2f}]"
    role = "" if entry.rankable else f" ({entry.role})"
    return Point(
        x=x(entry.median_s),
        y=y(score.value),
        label=entry.label + role,
        title=f"{entry.label}{role}: score {score.value:.2f}{interval}, "
        f"median latency {entry.median_s:+.2f} s",
        kind=entry.role,
        href=f"runs/{entry.slug}/index.html",
        x_range=None if p50.low is None or p50.high is None else (x(p50.low / 1000), x(p50.high / 1000)),
        y_range=None if score.low is None or score.high is None else (y(score.low), y(score.high)),
        on_front=on_front,
        key=entry.slug,
    )


def _front_path(front: Sequence[Entry], x: Axis, y: Axis) -> str:
    """A staircase: at every latency the best score that can be had by then."""
    corners = [(x(e.median_s or 0.0), y(e.score.value or 0.0)) for e in front]
    if not corners:
        return ""
    steps = [f"M{corners[0][0]} {corners[0][1]}"]
    steps += [f"H{px}V{py}" for px, py in corners[1:]]
    return "".join(steps) + f"H{x.end_px}"


def _with_labels(points: Sequence[Point], x: Axis, y: Axis) -> tuple[Point, ...]:
    """Put labels where they cover no other label and no point; a crowded chart names only the notable."""
    taken: list[tuple[float, float, float, float]] = [(p.x - 6, p.y - 6, p.x + 6, p.y + 6) for p in points]
    crowded = len(points) > MAX_LABELS
    order = sorted(points, key=lambda p: (not p.on_front, p.kind != "published", p.y, p.x))
    texts: dict[int, tuple[float, float, str]] = {}
    for point in order:
        if crowded and not point.on_front and point.kind == "system":
            continue
        wide = len(point.label) * CHAR_PX
        for dx, dy, anchor in PLACES:
            x0 = point.x + dx - wide * {"start": 0, "middle": 0.5, "end": 1}[anchor]
            box = (x0, point.y + dy - 11, x0 + wide, point.y + dy + 4)
            inside = box[0] >= x.start_px and box[2] <= x.end_px + 8 and box[1] >= 4 and box[3] <= y.start_px
            own = (point.x - 6, point.y - 6, point.x + 6, point.y + 6)
            if inside and not any(_cross(box, other) for other in taken if other != own):
                taken.append(box)
                texts[id(point)] = (round(point.x + dx, 1), round(point.y + dy, 1), anchor)
                break
    return tuple(replace(point, text=texts.get(id(point))) for point in points)


def _cross(a: tuple[float, float, float, float], b: tuple[float, float, float, float]) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


@dataclass(frozen=True)
class Curve:
    """P(response <= t) as a staircase with its band, in a box of `width` x `height`."""

    width: int
    height: int
    x: Axis
    y: Axis
    line: str
    band: str
    zero_x: float


def curve(found: ResponseCurve, width: int = 720, height: int = 300) -> Curve | None:
    """Lay out a response curve; None where nothing was answered."""
    if len(found.t_ms) == 0:
        return None
    t = found.t_ms / 1000
    low, high = min(float(t[0]), 0.0), max(float(t[-1]), 0.5)
    x = axis(low - 0.06 * (high - low), high + 0.1 * (high - low), 46, width - 14, n_ticks=7)
    y = axis(0.0, 1.0, height - 40, 12, n_ticks=5)
    band = ""
    if np.isfinite(found.low).all() and np.isfinite(found.high).all():
        up, down = _stairs(t, found.high, x, y), _stairs(t, found.low, x, y)
        band = "M" + "L".join(f"{px} {py}" for px, py in [*up, *reversed(down)]) + "Z"
    line = "M" + "L".join(f"{px} {py}" for px, py in _stairs(t, found.probability, x, y))
    return Curve(width, height, x, y, line, band, x(0.0))


def _stairs(t: Floats, p: Floats, x: Axis, y: Axis) -> list[tuple[float, float]]:
    corners = [(x.start_px, y(0.0))]
    for time, value in zip(t, p, strict=True):
        corners += [(x(float(time)), corners[-1][1]), (x(float(time)), y(float(value)))]
    return [*corners, (x.end_px, corners[-1][1])]


@dataclass(frozen=True)
class Bar:
    """One part of a stacked bar, in pixels; `shade` 1.. picks the colour."""

    x: float
    width: float
    name: str
    value_ms: float
    shade: int


def stacked(parts: dict[str, float], width: int = 720) -> tuple[Bar, ...]:
    """Mean stages side by side; a negative part (rounding of marks) is drawn as nothing."""
    total = sum(max(v, 0.0) for v in parts.values()) or 1.0
    bars: list[Bar] = []
    at = 0.0
    for shade, (name, value) in enumerate(parts.items(), start=1):
        wide = max(value, 0.0) / total * width
        bars.append(Bar(round(at, 1), round(wide, 1), name, value, (shade - 1) % 7 + 1))
        at += wide
    return tuple(bars)

"""Charts as inline SVG, for pages that load nothing: lines, steps and stacked areas over one axis, dots over two. Pure.

A drawing stretches with the page, so lines keep their width (`non-scaling-stroke`), dots are lines without length, and
all text is HTML around the drawing, placed in percent. Classes name what a mark means; the page's style colours them.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from math import ceil, floor, log10

Point = tuple[float, float]
_WIDTH, _HEIGHT = 1000.0, 300.0
_LETTER, _LABEL_HEIGHT = 2.2, 7.0
"""Room for a letter and a line beside a dot, in percent of a chart on a phone."""


@dataclass(frozen=True, slots=True)
class Axis:
    """From `low` to `high`; `ticks` are values with their texts."""

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]

    def share(self, value: float) -> float:
        """Where a value is, from 0 to 1."""
        return (value - self.low) / (self.high - self.low)


def number_axis(highest: float, most: int = 4) -> Axis:
    """From 0 to at least `highest`, with round ticks, `most` besides 0."""
    step = _round_step(max(highest, 1e-9) / most)
    count = max(ceil(highest / step - 1e-9), 1)
    return Axis(0.0, count * step, tuple((step * number, f"{step * number:g}") for number in range(count + 1)))


def time_axis(end: float, most: int = 6) -> Axis:
    """From 0 to `end` seconds, with ticks at round minutes or hours."""
    steps = (10.0, 30.0, 60.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 14400.0, 21600.0, 43200.0, 86400.0)
    step = next((step for step in steps if end / step <= most), steps[-1])
    return Axis(0.0, end, tuple((step * number, clock(step * number)) for number in range(int(end / step) + 1)))


def clock(seconds: float) -> str:
    """`1:05:20`, or `5:20` in the first hour."""
    hours, rest = divmod(round(seconds), 3600)
    minutes, left = divmod(rest, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"


def _round_step(least: float) -> float:
    size = 10.0 ** floor(log10(least))
    return next(size * factor for factor in (1.0, 2.0, 5.0, 10.0) if size * factor >= least * (1 - 1e-9))


@dataclass(frozen=True, slots=True)
class Mark:
    """Something at one time, with the text that a pointer on it shows."""

    at: float
    text: str


class Chart:
    """One drawing over a pair of axes; add to it, then `html`."""

    def __init__(self, across: Axis, up: Axis) -> None:
        self._across = across
        self._up = up
        self._drawn: list[str] = []
        self._texts: list[str] = []

    def line(self, points: Iterable[Point], name: str) -> None:
        self._path("M" + "L".join(self._place(point) for point in points), name)

    def steps(self, points: Sequence[Point], name: str, *, end: float) -> None:
        """Values that hold until the next point, the last one until `end`."""
        self._path("M" + "L".join(map(self._place, _corners(points, end))), name)

    def area(self, low: Sequence[Point], high: Sequence[Point], name: str, *, end: float) -> None:
        """Between two rows of steps at the same times."""
        outline = [*_corners(high, end), *reversed(_corners(low, end))]
        self._drawn.append(f'<path class="{name}" d="M{"L".join(map(self._place, outline))}Z"/>')

    def shade(self, start: float, end: float, name: str) -> None:
        """All of the height between two values."""
        self.area([(start, self._up.low)], [(start, self._up.high)], name, end=end)

    def dots(self, points: Iterable[Point], name: str) -> None:
        for point in points:
            self._path(f"M{self._place(point)}h0", f"dot {name}")

    def marks(self, marks: Iterable[Mark]) -> None:
        for mark in marks:
            x = self._across.share(mark.at) * _WIDTH
            path = f'd="M{x:.1f} 0V{_HEIGHT:g}"'
            title = f"<title>{escape(mark.text)}</title>"
            self._drawn.append(f'<g class="mark">{title}<path class="reach" {path}/><path {path}/></g>')

    def labels(self, labels: Iterable[tuple[Point, str, str]]) -> None:
        """Texts beside points, each with a class; one that would cover another moves down."""
        taken: list[tuple[float, float, float]] = []
        for (x, y), text, name in sorted(labels, key=lambda label: -label[0][1]):
            left, top, width = self._across.share(x) * 100, 100 - self._up.share(y) * 100, _LETTER * (len(text) + 2)
            before = left > 100 - width
            start = left - width if before else left
            for begin, end, height in sorted(taken, key=lambda place: place[2]):
                if start < end and begin < start + width and abs(top - height) < _LABEL_HEIGHT:
                    top = height + _LABEL_HEIGHT
            taken.append((start, start + width, top))
            style = f"left:{left:.1f}%;top:{top:.1f}%"
            side = "before" if before else "after"
            self._texts.append(f'<span class="label {side} {name}" style="{style}">{escape(text)}</span>')

    def html(self, name: str, about: str) -> str:
        """The drawing with its axes; `about` describes it to who cannot see it."""
        ups = [(1 - self._up.share(value), text) for value, text in self._up.ticks]
        acrosses = [(self._across.share(value), text) for value, text in self._across.ticks]
        grid = "".join(f'<path class="grid" d="M0 {share * _HEIGHT:.1f}H{_WIDTH:g}"/>' for share, _ in ups)
        texts = [f'<span class="up" style="top:{share:.1%}">{text}</span>' for share, text in ups]
        texts += [f'<span class="across" style="left:{share:.1%}">{text}</span>' for share, text in acrosses]
        return (
            f'<div class="chart {name}"><svg role="img" aria-label="{escape(about)}" preserveAspectRatio="none" '
            f'viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}">{grid}{"".join(self._drawn)}</svg>'
            f"{''.join(texts)}{''.join(self._texts)}</div>"
        )

    def _place(self, point: Point) -> str:
        x, y = self._across.share(point[0]), 1 - self._up.share(point[1])
        return f"{x * _WIDTH:.1f} {y * _HEIGHT:.1f}"

    def _path(self, path: str, name: str) -> None:
        self._drawn.append(f'<path class="line {name}" d="{path}"/>')


def _corners(points: Sequence[Point], end: float) -> list[Point]:
    found = [corner for (x, y), (after, _) in pairwise(points) for corner in ((x, y), (after, y))]
    last, height = points[-1]
    return [*found, (last, height), (end, height)]


def strip(values: Sequence[float], middle: float, axis: Axis, show: Callable[[float], str]) -> str:
    """Dots of several values on one short line, with a tick at the middle one, for a cell of a table."""
    dots = "".join(f'<circle class="dot" cx="{3 + axis.share(value) * 94:.1f}" cy="8" r="2.6"/>' for value in values)
    tick = f'<path class="middle" d="M{3 + axis.share(middle) * 94:.1f} 2v12"/>'
    about = escape(", ".join(map(show, values)))
    drawn = f'<path class="grid" d="M0 8h100"/>{dots}{tick}'
    return (
        f'<svg class="strip" role="img" aria-label="{about}" viewBox="0 0 100 16"><title>{about}</title>{drawn}</svg>'
    )

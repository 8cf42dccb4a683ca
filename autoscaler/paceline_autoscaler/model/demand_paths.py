"""How demand may go on from its level of now: what followed similar levels in history, moved to this one. Pure.

Each bin of history is an anchor: the level before it (the mean of LEVEL_BINS), and the rates of the bins in which a
replica ordered then would have begun to serve. From a level, anchors count the more the nearer they are to it, in
logarithms: those within about NEAR, or further until ENOUGH of them count. Their rates move with the level by its power
`slope`, found by regression in the neighbourhood: 0 where demand returns to its mean, 1 where it stays as it is. Beyond
the levels of history the power is 1.

A path has thirds of bins. Those of one bin differ by the history's dispersion: the highest is the last, the first or
the middle one in turn. There are no random numbers: the same history gives the same paths.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import exp, fsum, log

from paceline_autoscaler.model.late_work import thirds

LEVEL_BINS = 2
WINDOW_BINS = 2
"""Bins of the window that an order answers for, after one to warm up; later orders answer for what follows."""
PATHS = 64
NEAR, WIDER, WIDEST = 0.2, 1.3, 3.0
ENOUGH = 80.0
MAX_SLOPE = 1.1
MAX_ANCHORS = 2000
WARM_UP = 3
"""Thirds of a path before its window."""
_EDGE = 0.01
_SMALLEST = 0.05
"""In replica-s/s: lower levels are alike."""


@dataclass(frozen=True, slots=True)
class Path:
    """Rates in replica-s/s of thirds of bins; `peak` is the highest."""

    rates: tuple[float, ...]
    peak: float

    @property
    def window(self) -> float:
        """The mean rate of the window."""
        return fsum(self.rates[WARM_UP:]) / (len(self.rates) - WARM_UP)


class DemandPaths:
    """The paths after `segments` of rates by bin, for replicas that serve `lead_bins` after their order."""

    def __init__(self, segments: Sequence[Sequence[float]], lead_bins: int, dispersion: float) -> None:
        self._ahead = max(lead_bins, 1) - 1
        found = sorted(self._anchors(segments))
        self.highest = exp(found[-1][0]) if found else 0.0
        found = found[:: -(-len(found) // MAX_ANCHORS) or 1]
        self._levels = array("d", [level for level, _, _ in found])
        self._rates = array("d", [rate for _, rates, place in found for rate in rates[place : place + 1 + WINDOW_BINS]])
        self._dispersion = dispersion

    def __len__(self) -> int:
        """The number of anchors."""
        return len(self._levels)

    def of(self, level: float) -> list[Path]:
        """Equally likely paths from this level; none without a history."""
        return list(self._paths(log(max(level, _SMALLEST)))) if self._levels else []

    def _anchors(self, segments: Sequence[Sequence[float]]) -> Iterator[tuple[float, Sequence[float], int]]:
        """The logarithm of each level, and where the rates after the lead are."""
        for rates in segments:
            for place in range(LEVEL_BINS, len(rates) - self._ahead - WINDOW_BINS):
                level = fsum(rates[place - LEVEL_BINS : place]) / LEVEL_BINS
                yield log(max(level, _SMALLEST)), rates, place + self._ahead

    def _paths(self, level: float) -> Iterator[Path]:
        count = len(self._levels)
        low, high = self._levels[int(_EDGE * count)], self._levels[count - 1 - int(_EDGE * count)]
        inside = min(max(level, low), high)
        first, weights = self.near(inside)
        slope = self.slope(first, weights)
        for number, place in enumerate(_systematic(weights)):
            factor = exp(slope * (inside - self._levels[first + place]) + level - inside)
            yield _path([rate * factor for rate in self._after(first + place)], number, self._dispersion)

    def near(self, level: float) -> tuple[int, list[float]]:
        """The first of the anchors that count, and their weights."""
        width, enough = NEAR, min(ENOUGH, len(self._levels) / 2)
        while True:
            first, last = bisect_left(self._levels, level - 3 * width), bisect_right(self._levels, level + 3 * width)
            weights = [(1 - ((one - level) / (3 * width)) ** 2) ** 4 for one in self._levels[first:last]]
            total, squares = fsum(weights), fsum(weight * weight for weight in weights)
            if squares > 0 and (total * total >= enough * squares or width > WIDEST):
                return first, weights
            width *= WIDER

    def _after(self, anchor: int) -> Sequence[float]:
        place = anchor * (1 + WINDOW_BINS)
        return self._rates[place : place + 1 + WINDOW_BINS]

    def slope(self, first: int, weights: Sequence[float]) -> float:
        """How much of a difference in level is left in the window; 1 where all levels are the same."""
        levels = self._levels[first : first + len(weights)]
        windows = [
            log(max(fsum(self._after(first + place)[1:]) / WINDOW_BINS, _SMALLEST)) for place in range(len(weights))
        ]
        mean, total = fsum(map(_times, weights, levels)), fsum(weights)
        moved = [weight * (one - mean / total) for weight, one in zip(weights, levels, strict=True)]
        spread = fsum(map(_times, moved, levels))
        if spread <= 1e-9 * total:
            return 1.0
        return min(max(fsum(map(_times, moved, windows)) / spread, 0.0), MAX_SLOPE)


def _times(one: float, other: float) -> float:
    return one * other


def _systematic(weights: Sequence[float]) -> Iterator[int]:
    """PATHS places, each as often as its weight is a share of all."""
    step, place, until = fsum(weights) / PATHS, 0, weights[0]
    for number in range(PATHS):
        while (number + 0.5) * step > until and place < len(weights) - 1:
            place += 1
            until += weights[place]
        yield place


def _path(rates: Sequence[float], number: int, dispersion: float) -> Path:
    parts = [part for place, rate in enumerate(rates) for part in thirds(rate, number + place, dispersion)]
    return Path(tuple(parts), max(parts))

"""The capacity that demand may need once replicas ordered now serve, by the paths that it may take. Pure.

Along a path, work is served first come, first served. It begins with an empty queue a bin before the window: what waits
now is not counted, since capacity that is ordered now comes too late for it. What waits longer than a target allows is
late, and so is the work that the window leaves behind and that would wait as long.

Paths scale with the level, and so does the capacity that they need: it is searched for at points of a grid of levels,
once, and read off in between.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, exp, fsum, log

from paceline_autoscaler.model.demand_library import LIBRARY
from paceline_autoscaler.model.demand_paths import THIRD_S, WARM_UP, DemandPaths, Path
from paceline_autoscaler.model.series import quantile
from paceline_autoscaler.model.work_history import BIN_S, WorkHistory

_GRID = 0.1
"""Between two points, in the logarithm of levels and of slacks."""
_SMALLEST = 0.05
_HALVINGS = 10
_POINTS_KEPT = 256
KNOWN_BINS = 60
"""Half an hour: a history with fewer known bins tells less than others' demand."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """From one level: the capacity to keep late work within a share, and quantiles of the demand of the window."""

    needed: float
    p50: float
    p90: float

    def times(self, factor: float) -> "Outlook":
        return Outlook(self.needed * factor, self.p50 * factor, self.p90 * factor)


class DemandOutlook:
    """Of one history, for replicas that take `lead_s` to start."""

    def __init__(self, paths: DemandPaths) -> None:
        self._paths = paths
        self._points: dict[tuple[int, int, float], Outlook] = {}

    def at(self, level: float, slack_s: float, allowed: float) -> Outlook:
        """From a level in replica-s/s, where at most `allowed` of the work (0 to 1) may wait longer than `slack_s`."""
        level = max(level, _SMALLEST)
        point, slack = round(log(level) / _GRID), round(log(max(slack_s, 0.1)) / _GRID)
        key = (point, slack, allowed)
        if key not in self._points:
            if len(self._points) >= _POINTS_KEPT:
                self._points.clear()
            self._points[key] = _outlook(self._paths.of(exp(point * _GRID)), exp(slack * _GRID), allowed)
        return self._points[key].times(level / exp(point * _GRID))


def service_outlook(history: WorkHistory, lead_s: float, level: float, slack_s: float, allowed: float) -> Outlook:
    """Of a service with this history, and the level and promise that `DemandOutlook.at` takes.

    Until the history has KNOWN_BINS, it is that of public traces whose mean is the history's, or this level without any.
    """
    if history.known >= KNOWN_BINS:
        return outlook_of(history, lead_bins(lead_s)).at(level, slack_s, allowed)
    usual = max(history.mean or level, _SMALLEST)
    return outlook_of(LIBRARY, lead_bins(lead_s)).at(level / usual, slack_s, allowed).times(usual)


@lru_cache(maxsize=4096)
def outlook_of(history: WorkHistory, lead_bins: int) -> DemandOutlook:
    """The outlook of a history, made once."""
    return DemandOutlook(DemandPaths(list(history.segments()), lead_bins, history.dispersion))


def lead_bins(lead_s: float) -> int:
    """The bin in which a replica ordered now begins to serve, counted from now."""
    return max(ceil(lead_s / BIN_S), 1)


def _outlook(paths: Sequence[Path], slack_s: float, allowed: float) -> Outlook:
    windows = [path.window for path in paths]
    low, high = 0.0, max(path.peak for path in paths)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if late_share(paths, middle, slack_s) <= allowed:
            high = middle
        else:
            low = middle
    return Outlook(high, quantile(windows, 0.5), quantile(windows, 0.9))


def late_share(paths: Sequence[Path], capacity: float, slack_s: float) -> float:
    """The share (0 to 1) of all work of the windows that is late with this capacity, in replica-s/s."""
    offered = fsum(fsum(path.rates[WARM_UP:]) for path in paths) * THIRD_S
    late = fsum(_late(path.rates, capacity, slack_s) for path in paths if path.peak > capacity)
    return min(late / offered, 1.0) if offered > 0 else 0.0


def _late(rates: Sequence[float], capacity: float, slack_s: float) -> float:
    """The late work of one path, in replica-s."""
    late = waiting = 0.0
    limit = slack_s * capacity
    for place, rate in enumerate(rates):
        before, waiting = waiting, max(waiting + (rate - capacity) * THIRD_S, 0.0)
        if place >= WARM_UP and max(before, waiting) > limit:
            late += rate * THIRD_S * _share_beyond(before, waiting, limit)
    return late + max(waiting - limit, 0.0)


def _share_beyond(first: float, last: float, limit: float) -> float:
    """The share of a span in which a queue that goes evenly from one length to another is longer than the limit."""
    low, high = min(first, last), max(first, last)
    return 1.0 if low >= limit else (high - limit) / (high - low)

"""The capacity that demand may need once replicas ordered now serve, by the paths that it may take. Pure.

A path begins with an empty queue a bin before the window: what waits now is not counted, since capacity that is ordered
now comes too late for it.

Paths scale with the level, and so does the capacity that they need: it is searched for at points of a grid of levels,
once, and read off in between.

A constant capacity may have kept late work far below the allowed share through all of history: where demand jumps too
often to be followed, that is cheaper.

A short history has not seen rare jumps: the shorter it is, the more of what others' demand needs is added.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, exp, fsum, inf, log
from weakref import WeakKeyDictionary

from paceline_autoscaler.model.demand_library import LIBRARY
from paceline_autoscaler.model.demand_paths import WARM_UP, DemandPaths, Path
from paceline_autoscaler.model.late_work import THIRD_S, busiest, constant_capacity, late_work, least_capacity
from paceline_autoscaler.model.series import quantile
from paceline_autoscaler.model.work_history import BIN_S, WorkHistory

_GRID = 0.1
"""Between two points, in the logarithm of levels and of slacks."""
_SMALLEST = 0.05
_POINTS_KEPT = 256
PLANNED_SHARE, CONSTANT_SHARE = 0.5, 0.25
"""Of the share that may be late, for paths and for a constant: the rest is for what is not foreseen."""
KNOWN_BINS = 60
"""Half an hour: a history with fewer bins of work tells less than others' demand."""
DOUBTED_BINS = 90
"""Three quarters of an hour: with as short a history others' demand counts in full where it needs more, with one n
times as long by an n-th of that."""
MAX_LEAD_BINS = 120
"""An hour: paths that begin later are too few in any history."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """From one level: the capacity to keep late work within a share, and quantiles of the demand of the window.

    `constant`: the capacity that kept it through all of history, in which levels were at most `highest`, and their mean
    over some minutes at most `busiest`. `others`: the capacity that others' demand needs where this level is its mean,
    and `doubt` (0 to 1) how much it counts if that is more.
    """

    needed: float
    p50: float
    p90: float
    constant: float = inf
    highest: float = inf
    busiest: float = inf
    others: float = 0.0
    doubt: float = 0.0

    def times(self, factor: float) -> "Outlook":
        return Outlook(factor * self.needed, factor * self.p50, factor * self.p90)

    def needed_after(self, level: float, mean: float) -> float:
        """The capacity that is needed from this level, and this mean of some minutes."""
        own = self._own(level, mean)
        return own + self.doubt * max(self.others - own, 0.0)

    def _own(self, level: float, mean: float) -> float:
        """The capacity that is needed within what the past says about this level and this mean.

        While the mean is no higher than it has been, no more than the constant is needed, in proportion if the level is
        higher. Beyond, no less than that in proportion: demand may not come back from there.
        """
        if mean <= self.busiest:
            return min(self.needed, self.constant * max(level / self.highest, 1.0))
        return max(self.needed, self.constant * mean / self.busiest)


class DemandOutlook:
    """Of one history, for replicas that begin to serve `lead_bins` after their order."""

    def __init__(self, history: WorkHistory, lead_bins: int, paths: type[DemandPaths] = DemandPaths) -> None:
        self._paths = paths(list(history.segments()), lead_bins, history.dispersion)
        self._history = replace(history)  # a copy: the history itself must not outlive its other users (`_made`)
        self._busiest = max(busiest(history), _SMALLEST)
        self.known = len(self._paths) > 0 and history.worked(_SMALLEST) >= KNOWN_BINS
        """Whether the history says enough of what demand does."""
        self._constants: dict[tuple[int, float], float] = {}
        self._points: dict[tuple[int, int, float], Outlook] = {}

    def at(self, level: float, slack_s: float, allowed: float) -> Outlook:
        """From a level in replica-s/s, where at most `allowed` of the work (0 to 1) may wait longer than `slack_s`."""
        level = max(level, _SMALLEST)
        point, slack = round(log(level) / _GRID), round(log(max(slack_s, 0.1)) / _GRID)
        key = (point, slack, allowed)
        if key not in self._points:
            if len(self._points) >= _POINTS_KEPT:
                self._points.clear()
            share = PLANNED_SHARE * allowed
            self._points[key] = _outlook(self._paths.of(exp(point * _GRID)), exp(slack * _GRID), share)
        found = self._points[key].times(level / exp(point * _GRID))
        constant = self._constant(slack, allowed)
        return replace(found, constant=constant, highest=self._paths.highest, busiest=self._busiest)

    def _constant(self, slack: int, allowed: float) -> float:
        if (slack, allowed) not in self._constants:
            share = CONSTANT_SHARE * allowed
            self._constants[slack, allowed] = constant_capacity(self._history, exp(slack * _GRID), share)
        return self._constants[slack, allowed]


def service_outlook(history: WorkHistory, lead_s: float, level: float, slack_s: float, allowed: float) -> Outlook:
    """Of a service with this history, and the level and promise that `DemandOutlook.at` takes.

    Until the history has KNOWN_BINS of work, and paths, it is that of public traces that have its mean, or this level
    if it has none. Less than the mean needs no more than the mean: quiet minutes of a service that is hardly known
    announce no burst. It needs its level at least. From KNOWN_BINS on public traces count by `doubt`.
    """
    own = outlook_of(history, lead_bins(lead_s))
    library = outlook_of(LIBRARY, lead_bins(lead_s))
    if own.known:
        others = level * library.at(1.0, slack_s, allowed).needed
        doubt = min(DOUBTED_BINS / history.known, 1.0)
        return replace(own.at(level, slack_s, allowed), others=others, doubt=doubt)
    usual = max(history.mean or level, _SMALLEST)
    found, mean = (library.at(each, slack_s, allowed).times(usual) for each in (level / usual, 1.0))
    most = mean.needed if level < usual else inf
    return Outlook(max(min(found.needed, most), level), found.p50, found.p90)


_made: WeakKeyDictionary[WorkHistory, dict[int, DemandOutlook]] = WeakKeyDictionary()


def outlook_of(history: WorkHistory, lead_bins: int) -> DemandOutlook:
    """The outlook of a history, made once and kept as long as the history."""
    leads = _made.setdefault(history, {})
    if lead_bins not in leads:
        leads[lead_bins] = DemandOutlook(history, lead_bins)
    return leads[lead_bins]


def lead_bins(lead_s: float) -> int:
    """The bin in which a replica ordered now begins to serve, counted from now."""
    return min(max(ceil(lead_s / BIN_S), 1), MAX_LEAD_BINS)


def _outlook(paths: Sequence[Path], slack_s: float, allowed: float) -> Outlook:
    windows = [path.window for path in paths]
    peak = max(path.peak for path in paths)
    needed = least_capacity(peak, lambda capacity: late_share(paths, capacity, slack_s) <= allowed)
    return Outlook(needed, quantile(windows, 0.5), quantile(windows, 0.9))


def late_share(paths: Sequence[Path], capacity: float, slack_s: float) -> float:
    """The share (0 to 1) of all work of the windows that is late with this capacity, in replica-s/s."""
    offered = fsum(fsum(path.rates[WARM_UP:]) for path in paths) * THIRD_S
    late = fsum(late_work(path.rates, capacity, slack_s, WARM_UP) for path in paths if path.peak > capacity)
    return min(late / offered, 1.0) if offered > 0 else 0.0

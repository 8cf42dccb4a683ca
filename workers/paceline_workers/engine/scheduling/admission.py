"""Whether one more request may run: a slot, its pages now, and the pages of all at the worst moment to come.

With a window a request stops growing when it holds as many pages as it ever will, fewer once its prompt is through; it
counts with that many at once.

Pages and slots that are kept for a class and those more urgent: the others may not plan to fill them.

It holds at admission alone, by the same predicted peak, and only against requests of the same kind: those less urgent
than the class may together reach all pages, and take all slots, but the ones kept. Whoever runs is not held to it, and
where none of them runs the first is admitted whatever it needs. So it takes nothing from the scheduler's argument
against livelock: those that run end, then the next of them begins. While one has to wait for this, none that is as
urgent or less passes it.
"""

from bisect import insort
from collections.abc import Sequence
from math import ceil
from operator import itemgetter

from paceline_core.registry.enums import RequestClass
from paceline_workers.engine.kv_cache.manager import KVCacheManager
from paceline_workers.engine.scheduling.length_forecast import Forecast, Load, peak
from paceline_workers.engine.scheduling.plan import SchedulerLimits
from paceline_workers.engine.scheduling.request import Request


def reserved(
    urgency: int, joining: Sequence[Load], running: Sequence[tuple[int, Load]], limits: SchedulerLimits, total: int
) -> bool:
    """Whether loads of this urgency, beside `running` with theirs, would reach into what is kept for others."""
    kept = 0.0
    for place, name in enumerate(RequestClass):
        share = limits.reserved.get(name, 0.0)
        kept += share
        others = [load for other, load in running if other > place]
        if not share or urgency <= place or not others:
            continue
        loads = sorted([*joining, *others], reverse=True)
        if len(loads) > (1 - kept) * limits.slots or peak(loads, limits.page_tokens) > (1 - kept) * total:
            return True
    return False


class Admission:
    """Keeps what the running requests add to the peak while they stay the same: many may ask in one step."""

    def __init__(self, memory: KVCacheManager, limits: SchedulerLimits, forecast: Forecast) -> None:
        self._memory = memory
        self._limits = limits
        self._forecast = forecast
        self._loads: list[Load] | None = None
        self._common = 0

    def reserved(self, request: Request, running: Sequence[Request]) -> bool:
        """Whether it would reach into pages that are kept for more urgent classes."""
        if not self._limits.reserved:
            return False
        joining = self._joining(request, self._memory.cost(request))
        loads = [(other.urgency, self._load(other, other.own_pages)) for other in running]
        return reserved(request.urgency, joining, loads, self._limits, self._memory.total)

    def debt(self, running: Sequence[Request]) -> int:
        """Pages that those which run are going to need beyond all there are."""
        return max(ceil(self._peak((), running)) - self._memory.total, 0)

    def fits(self, request: Request, running: Sequence[Request]) -> bool:
        """Whether it may join those that run."""
        if len(running) >= self._limits.slots:
            return False
        cost, followers, each = self._memory.cost(request), 0, 0
        if request.beams is not None:
            followers, each = len(request.beams.members) - 1, request.beams.spread(self._limits, self._memory.most)
        if len(running) + followers >= self._limits.slots or cost + followers * each > self._memory.available:
            return False
        if not running:
            return True
        if self.reserved(request, running):
            return False
        return self._peak(self._joining(request, cost), running) <= self._memory.total

    def seated(self, request: Request) -> None:
        """It runs now."""
        if self._loads is not None:
            insort(self._loads, self._load(request, request.own_pages), key=_shortness)

    def leaves(self, request: Request) -> None:
        """It runs no more, and still holds its pages. If it has come on since it was counted, all are counted again."""
        load = self._load(request, request.own_pages)
        if self._loads is not None and load in self._loads:
            self._loads.remove(load)
        else:
            self._loads = None

    def changed(self) -> None:
        """Those that run have grown, or produced."""
        self._loads = None

    def _joining(self, request: Request, cost: int) -> list[Load]:
        """What it would add, and the other beams of its search."""
        beams, first = request.beams, self._load(request, cost)
        if beams is None:
            return [first]
        return [first, *[self._load(request, beams.spread(self._limits, self._memory.most))] * (len(beams.members) - 1)]

    def _peak(self, joining: Sequence[Load], running: Sequence[Request]) -> float:
        if self._loads is None:
            if self._memory.most is None:  # then nothing is dropped either
                own = [len(other.pages) - other.shared for other in running]
                self._loads = list(zip(self._forecast.all_remaining(running), own, strict=True))
            else:
                own = [other.own_pages for other in running]
                self._loads = list(map(self._load, running, own))
            self._loads.sort(key=itemgetter(0), reverse=True)
            self._common = max(self._memory.held - sum(own), 0)
        loads = self._loads.copy()
        for load in joining:
            insort(loads, load, key=_shortness)
        return self._common + peak(loads, self._limits.page_tokens)

    def _load(self, request: Request, pages: int) -> Load:
        remaining = self._forecast.remaining(request)
        least, most = self._memory.least, self._memory.most
        if least is None or most is None:
            return remaining, pages
        bound = least if request.decoding else max(least, min(most, self._limits.pages(request.wanted)))
        if self._limits.pages(request.wanted + remaining) < bound:
            return remaining, pages
        return 0, max(bound - request.shared, pages)


def _shortness(load: Load) -> int:
    """The longest to go first."""
    return -load[0]

"""Whether one more request may run: a slot, its pages now, and the pages of all at the worst moment to come."""

from collections.abc import Sequence

from paceline_workers.engine.memory.kv import KvMemory
from paceline_workers.engine.scheduling.forecast import Forecast, Load, peak
from paceline_workers.engine.scheduling.plan import Limits
from paceline_workers.engine.scheduling.request import Request


class Admission:
    """Keeps what the running requests add to the peak while they stay the same: many may ask in one step."""

    def __init__(self, memory: KvMemory, limits: Limits, forecast: Forecast) -> None:
        self._memory = memory
        self._limits = limits
        self._forecast = forecast
        self._loads: list[Load] | None = None

    def fits(self, request: Request, running: Sequence[Request]) -> bool:
        """Whether it may join those that run."""
        cost = self._memory.cost(request)
        if len(running) >= self._limits.slots or cost > self._memory.available:
            return False
        return not running or self._peak(request, cost, running) <= self._memory.total

    def seated(self, request: Request) -> None:
        """It runs now."""
        if self._loads is not None:
            self._loads.append(self._load(request))

    def changed(self) -> None:
        """Somebody left, or grew."""
        self._loads = None

    def _peak(self, request: Request, cost: int, running: Sequence[Request]) -> float:
        if self._loads is None:
            self._loads = sorted(map(self._load, running), reverse=True)
        loads = [*self._loads, (self._forecast.remaining(request), cost)]
        loads.sort(reverse=True)
        common = self._memory.held - sum(pages for _, pages in self._loads)
        return max(common, 0) + peak(loads, self._limits.page_tokens)

    def _load(self, request: Request) -> Load:
        return self._forecast.remaining(request), len(request.pages) - request.shared

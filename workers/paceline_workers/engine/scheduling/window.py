"""The batch window that is open: how long requests have waited for company, and nothing else, while nothing ran."""

from collections.abc import Mapping
from math import inf

from paceline_core.registry.enums import RequestClass
from paceline_workers.engine.scheduling.plan import StepPlan
from paceline_workers.engine.scheduling.request import Request


class BatchWindow:
    """Opens with the first request that is held, closes with the step that takes it in."""

    def __init__(self) -> None:
        self._since: float | None = None

    def hold(self, opens: Mapping[RequestClass, float], deadline: float | None, now: float) -> StepPlan:
        """Nothing yet: a plan that says when to look again. `opens`: when each waiting class may begin."""
        if not opens:
            self._since = None
        elif self._since is None:
            self._since = now
        return StepPlan(wake=min((time for time in (*opens.values(), deadline) if time is not None), default=None))

    def waited(self, request: Request, opened: float, now: float) -> float:
        """Seconds that a window, and nothing else, kept a request waiting; its class may join since `opened`."""
        if self._since is not None:
            return now - max(request.arrival, self._since)
        return max(min(opened, now) - request.arrival, 0.0)

    def close(self, now: float) -> float:
        """A step begins; returns the seconds that it was held."""
        since, self._since = self._since, None
        return 0.0 if since is None else now - since


def shut(opens: Mapping[RequestClass, float], now: float) -> bool:
    """No class may begin yet."""
    return min(opens.values(), default=inf) > now

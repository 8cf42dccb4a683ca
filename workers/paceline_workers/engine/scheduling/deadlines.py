"""Requests whose first token would be late: rejected when submitted, or ended as soon as that is certain.

Every estimate is from below: a request's own prompt, or that and the shorter ones of its class, computed without a
pause; with an attention window, tokens attend to half of it. So a request that is shed could not have been in time;
one that is not may still be late, and then ends at its deadline. A model of fewer than MIN_OBSERVATIONS steps is a
guess, and sheds nothing.

The heap holds each request by when it is due: a waiting one when its service would end past its deadline, a running one
at the deadline itself. Stale entries are dropped at the top.
"""

import heapq
from collections.abc import Iterator
from itertools import count
from math import inf

from paceline_workers.engine.kv_cache.manager import KVCacheManager
from paceline_workers.engine.scheduling import cost
from paceline_workers.engine.scheduling.cost import CostEstimator
from paceline_workers.engine.scheduling.request import Request, RequestStatus

MIN_OBSERVATIONS = 16


class Deadlines:
    """The requests with a deadline that have no token yet."""

    def __init__(self, costs: CostEstimator, memory: KVCacheManager) -> None:
        self._costs = costs
        self._memory = memory
        self._heap: list[tuple[float, int, Request]] = []
        self._order = count()

    def add(self, request: Request) -> None:
        """Watch a request, if it has a deadline."""
        if request.deadline is not None:
            heapq.heappush(self._heap, (self._due(request), next(self._order), request))

    def next(self) -> float | None:
        while self._heap:
            time, _, request = self._heap[0]
            if request.state is not RequestStatus.DONE and request.first_token is None:
                return time
            heapq.heappop(self._heap)
        return None

    def due(self, now: float) -> Iterator[Request]:
        """Take out those that are too late; one that has made progress since is watched further."""
        while (time := self.next()) is not None and time <= now:
            request = heapq.heappop(self._heap)[2]
            if self._due(request) <= now:
                yield request
            else:
                self.add(request)

    def cannot_meet(self, request: Request, ahead: int) -> str:
        """Why a new request is not queued behind `ahead` tokens; "" if it is."""
        if request.deadline is None or not ahead or not self._trusted:
            return ""
        remaining = request.deadline - request.arrival
        if ahead * self._costs.model.prefill + self._service(request, request.uncached) <= remaining:
            return ""
        return (
            f"shed: {ahead} tokens are to compute before, which takes longer than the {remaining:.3f} s to the deadline"
        )

    def _due(self, request: Request) -> float:
        """Until when a request may wait, or, if it runs, have no token."""
        assert request.deadline is not None
        if request.state is RequestStatus.RUNNING or not self._trusted:
            return request.deadline
        return request.deadline - self._service(request, self._memory.uncached(request))

    def _service(self, request: Request, tokens: int) -> float:
        window = self._memory.attention_window.window
        return cost.service(self._costs.model, tokens, request.wanted, inf if window is None else window / 2)

    @property
    def _trusted(self) -> bool:
        return cost.known(self._costs.model) and self._costs.model.observations >= MIN_OBSERVATIONS


def too_late(request: Request, now: float) -> str:
    """Why a request ends that is past its deadline, or would be before its prompt is computed."""
    assert request.deadline is not None
    if now >= request.deadline:
        return f"no token before the deadline, {now - request.arrival:.3f} s"
    remaining = request.deadline - now
    return (
        f"shed: {request.uncached} tokens are to compute, which takes longer than the {remaining:.3f} s to the deadline"
    )

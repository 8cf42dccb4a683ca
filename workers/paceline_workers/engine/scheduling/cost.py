"""Predicted seconds of requests by the step-time model, and which requests would be late.

A model without a prefill coefficient predicts nothing: then service is counted in tokens, which orders requests just as
well. `visible` bounds the tokens that one token attends to.

A request whose first token would be late is rejected when submitted, or ended as soon as that is certain. Every
estimate is a lower bound: its own prompt, or that and the shorter ones of its class, computed without a pause; with an
attention window, tokens attend to half of it. So a request that is shed could not have been in time; one that is not
shed may still be late, and then ends at its deadline. A model with fewer than MIN_OBSERVATIONS steps is a guess, and
sheds nothing.
"""

import heapq
from collections.abc import Callable, Iterator
from itertools import count
from math import inf

from paceline_core.wire import StepTime
from paceline_workers.engine.kv_cache.manager import KVCacheManager
from paceline_workers.engine.scheduling.request import Request, RequestStatus

MIN_OBSERVATIONS = 16
UNKNOWN = StepTime(base=0.0, prefill=0.0)


class CostEstimator:
    """The step-time `model` applied to requests. Predictions are usually off by a share of `margin`.

    `serves`: the class policy's service in the response ratio for a number of seconds.
    """

    def __init__(self, visible: float, serves: Callable[[float], float]) -> None:
        self.model: StepTime = UNKNOWN
        self.margin = 0.0
        self.visible = visible
        self._serves = serves

    def refresh(self, request: Request, uncached: int) -> None:
        """Set how many tokens of a waiting request are left to compute."""
        request.uncached = uncached
        request.service = self.service(uncached, len(request.tokens))

    def service(self, tokens: int, length: int) -> float:
        """The service in the response ratio of a request of `length` tokens with the last `tokens` left to compute."""
        return self._serves(service(self.model, tokens, length, self.visible))


def known(model: StepTime) -> bool:
    """Whether the model predicts anything."""
    return model.prefill > 0


def service(model: StepTime, tokens: int, length: int, visible: float = inf) -> float:
    """Seconds to compute the last `tokens` tokens of `length` in a separate step."""
    if not known(model):
        return float(tokens)
    context = min(length - (tokens - 1) / 2, visible)
    return model.seconds(prefill_tokens=tokens, sequences=0, kv_tokens=0, context=context)


class Deadlines:
    """The requests with a deadline that have no token yet, in a heap by when each is due.

    A waiting request is due when its service would end after its deadline, a running one at the deadline itself. Stale
    entries are dropped at the top of the heap.
    """

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
        """Remove those that are too late; one that has progressed since gets a new entry."""
        while (time := self.next()) is not None and time <= now:
            request = heapq.heappop(self._heap)[2]
            if self._due(request) <= now:
                yield request
            else:
                self.add(request)

    def cannot_meet(self, request: Request, ahead: int) -> str:
        """Why a new request cannot be queued behind `ahead` tokens; "" if it can."""
        if request.deadline is None or not ahead or not self._trusted:
            return ""
        remaining = request.deadline - request.arrival
        if ahead * self._costs.model.prefill + self._service(request, request.uncached) <= remaining:
            return ""
        return (
            f"shed: {ahead} tokens are to compute before, which takes longer than the {remaining:.3f} s to the deadline"
        )

    def _due(self, request: Request) -> float:
        """How long a request may wait, or, if it runs, be without a token."""
        assert request.deadline is not None
        if request.state is RequestStatus.RUNNING or not self._trusted:
            return request.deadline
        return request.deadline - self._service(request, self._memory.uncached(request))

    def _service(self, request: Request, tokens: int) -> float:
        window = self._memory.attention_window.window
        return service(self._costs.model, tokens, len(request.tokens), inf if window is None else window / 2)

    @property
    def _trusted(self) -> bool:
        return known(self._costs.model) and self._costs.model.observations >= MIN_OBSERVATIONS


def too_late(request: Request, now: float) -> str:
    """Why a request ends: it is past its deadline, or would be before its prompt is computed."""
    assert request.deadline is not None
    if now >= request.deadline:
        return f"no token before the deadline, {now - request.arrival:.3f} s"
    remaining = request.deadline - now
    return (
        f"shed: {request.uncached} tokens are to compute, which takes longer than the {remaining:.3f} s to the deadline"
    )

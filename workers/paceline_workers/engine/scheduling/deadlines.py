"""When a request's first token would be late, and what its client is told. Pure; times are the scheduler's seconds.

With a window in sight, tokens see half of it or more on the way to the last one.
Every estimate is from below: its own prompt, or that and the shorter ones of its class, computed without a pause. So
what is shed could not have been in time; what is not shed may still be late, and then ends at its deadline. A model
that has seen fewer than OBSERVATIONS steps is a guess, and sheds nothing.

Which requests can no longer have their first token in time: a heap whose stale entries fall out at the top.

A waiting request is due when its own service would end past its deadline, a running one at the deadline itself.
"""

import heapq
from collections.abc import Callable, Iterator
from itertools import count
from math import inf

from paceline_core.wire import StepTime
from paceline_workers.engine.kv_cache.attention_window import ALL, AttentionWindow
from paceline_workers.engine.scheduling import cost
from paceline_workers.engine.scheduling.request import Request, RequestStatus


class Deadlines:
    """Requests with a deadline that have not begun. `latest` tells until when one may stay as it is."""

    def __init__(self, latest: Callable[[Request], float]) -> None:
        self._latest = latest
        self._heap: list[tuple[float, int, Request]] = []
        self._order = count()

    def add(self, request: Request) -> None:
        """Watch a request, if it has a deadline."""
        if request.deadline is not None:
            heapq.heappush(self._heap, (self._latest(request), next(self._order), request))

    def next(self) -> float | None:
        """When the next one may be due."""
        while self._heap and not self._open(self._heap[0][2]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def due(self, now: float) -> Iterator[Request]:
        """Take out those that are too late; one that has come on since is watched on."""
        while (time := self.next()) is not None and time <= now:
            request = heapq.heappop(self._heap)[2]
            if self._latest(request) <= now:
                yield request
            else:
                self.add(request)

    @staticmethod
    def _open(request: Request) -> bool:
        return request.state is not RequestStatus.DONE and request.first_token is None


OBSERVATIONS = 16


def cannot_meet_deadline(model: StepTime, request: Request, ahead: int, sight: AttentionWindow = ALL) -> str:
    """Why a new request is not queued behind `ahead` tokens; "" if it is."""
    if request.deadline is None or not ahead or not _trusted(model):
        return ""
    left = request.deadline - request.arrival
    if ahead * model.prefill + _service(model, request, request.uncached, sight) <= left:
        return ""
    return f"shed: {ahead} tokens are to compute before, which takes longer than the {left:.3f} s to the deadline"


def latest_start(model: StepTime, request: Request, uncached: int, sight: AttentionWindow = ALL) -> float:
    """Until when a request may wait, or, if it runs, have no token. It must have a deadline."""
    assert request.deadline is not None
    if request.state is RequestStatus.RUNNING or not _trusted(model):
        return request.deadline
    return request.deadline - _service(model, request, uncached, sight)


def too_late(request: Request, now: float) -> str:
    """Why a request ends that is past its deadline, or would be before its prompt is computed."""
    assert request.deadline is not None
    if now >= request.deadline:
        return f"no token before the deadline, {now - request.arrival:.3f} s"
    left = request.deadline - now
    return f"shed: {request.uncached} tokens are to compute, which takes longer than the {left:.3f} s to the deadline"


def _service(model: StepTime, request: Request, tokens: int, sight: AttentionWindow) -> float:
    return cost.service(model, tokens, request.wanted, inf if sight.window is None else sight.window / 2)


def _trusted(model: StepTime) -> bool:
    return cost.known(model) and model.observations >= OBSERVATIONS

"""Whom to preempt: the request that loses least work, in predicted seconds of computing it again.

Measured on Azure's conversation log: to weigh lost work by the pages that are freed, or by growth to come, computes
more tokens again, since the requests with most pages are those that have computed most.
Nobody who came back less than RESPITE steps ago is chosen while anybody else is left, so that two requests cannot take
turns in undoing each other; and the oldest running request is never chosen for want of pages, so there is always one
that only moves forward: no livelock.
Known hole: that host memory has room for what would go there is taken for granted.
"""

from collections.abc import Callable, Iterable, Sequence, Set
from typing import NamedTuple

from paceline_core.registry.enums import RequestClass
from paceline_core.wire import StepTime
from paceline_workers.engine.kv_cache.manager import KVCacheManager
from paceline_workers.engine.scheduling import cost
from paceline_workers.engine.scheduling.beams import members
from paceline_workers.engine.scheduling.cost_estimator import CostEstimator
from paceline_workers.engine.scheduling.plan import Counters
from paceline_workers.engine.scheduling.request import Request

RESPITE = 4


class VictimCandidate(NamedTuple):
    """A running request: pages it would free, seconds of work that would be lost."""

    request: Request
    freed: int
    lost: float

    @classmethod
    def of(cls, request: Request, model: StepTime, memory: KVCacheManager) -> "VictimCandidate":
        """Pages that others hold too are neither freed nor lost; what host memory keeps costs the way back."""
        holders = [member for member in members(request) if member.pages]
        freed = sum([holder.own_pages for holder in holders])
        if memory.offload.restores:
            lost, back = sum(map(memory.lost, holders)), memory.offload.back_seconds(freed)
        else:
            lost, back = sum([holder.computed - holder.shared * memory.page_tokens for holder in holders]), 0.0
        return cls(request, freed, cost.service(model, max(lost, 1), request.computed) + back)


Choice = Callable[[Iterable[VictimCandidate], int], Request]


class PreemptionPolicy:
    """Of some requests, the one to preempt."""

    def __init__(self, memory: KVCacheManager, appraisal: CostEstimator, counters: Counters, choose: Choice) -> None:
        self._memory = memory
        self._appraisal = appraisal
        self._counters = counters
        self._choose = choose

    def choose(self, requests: Iterable[Request]) -> Request:
        """By what each would lose now."""
        model, memory = self._appraisal.model, self._memory
        return self._choose([VictimCandidate.of(request, model, memory) for request in requests], self._counters.steps)


def cheapest(candidates: Iterable[VictimCandidate], step: int) -> Request:
    """The cheapest that frees anything; of equal ones, and when all need respite, the last in the list."""
    listed = list(candidates)
    rested = [found for found in listed if rests(found.request, step)]
    if not rested:
        return listed[-1].request
    return min(reversed(rested), key=lambda found: (not found.freed, found.lost)).request


def yielding(running: Sequence[Request], classes: Set[RequestClass], step: int) -> list[Request]:
    """Of those that run, most urgent first, who may be put back for others: the least urgent that belong to `classes`.

    Not again before it has produced a token since the last time.
    """
    found: list[Request] = []
    for request in reversed(running):
        if found and request.request_class is not found[0].request_class:
            break
        fresh = not request.preemptions or (request.produced > request.resumed_at and rests(request, step))
        if fresh and request.request_class in classes:
            found.append(request)
    return found[::-1]


def rests(request: Request, step: int) -> bool:
    """Whether it may be preempted (again)."""
    return not request.preemptions or step - request.resumed_step >= RESPITE

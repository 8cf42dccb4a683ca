"""Which request to preempt: the one that loses least work, in predicted seconds of computing it again.

Measured on Azure's conversation log: weighting lost work by freed pages, or by future growth, recomputes more tokens,
because the requests with most pages are those that have computed most.
No livelock: a request resumed less than COOLDOWN_STEPS ago is chosen only if all are, so two requests cannot preempt
each other in turns; and the oldest running request is never chosen for lack of pages, so one always progresses.
Known hole: the choice assumes that host memory has room for the pages that would move there.
"""

from collections.abc import Callable, Iterable, Sequence, Set
from typing import NamedTuple

from paceline_core.registry.enums import RequestClass
from paceline_core.wire import StepTime
from paceline_workers.engine.kv_cache.manager import KVCacheManager
from paceline_workers.engine.scheduling import cost
from paceline_workers.engine.scheduling.cost import CostEstimator
from paceline_workers.engine.scheduling.plan import Counters
from paceline_workers.engine.scheduling.request import Request, members

COOLDOWN_STEPS = 4


class VictimCandidate(NamedTuple):
    """A running request: the pages it would free, and the seconds of work it would lose."""

    request: Request
    freed: int
    lost: float

    @classmethod
    def of(cls, request: Request, model: StepTime, memory: KVCacheManager) -> "VictimCandidate":
        """Shared pages are neither freed nor lost; pages kept in host memory cost the copy back."""
        holders = [member for member in members(request) if member.pages]
        freed = sum([holder.own_pages for holder in holders])
        if memory.offload.restores:
            lost, back = sum(map(memory.lost, holders)), freed * memory.offload.copy_seconds
        else:
            lost, back = sum([holder.computed - holder.shared * memory.page_tokens for holder in holders]), 0.0
        return cls(request, freed, cost.service(model, max(lost, 1), request.computed) + back)


Choice = Callable[[Iterable[VictimCandidate], int], Request]


class PreemptionPolicy:
    """Chooses among running requests by what each would lose now."""

    def __init__(self, memory: KVCacheManager, costs: CostEstimator, counters: Counters, choose: Choice) -> None:
        self._memory = memory
        self._costs = costs
        self._counters = counters
        self._choose = choose

    def choose(self, requests: Iterable[Request]) -> Request:
        """The request to preempt, of at least one."""
        model, memory = self._costs.model, self._memory
        return self._choose([VictimCandidate.of(request, model, memory) for request in requests], self._counters.steps)


def cheapest(candidates: Iterable[VictimCandidate], step: int) -> Request:
    """The cheapest that frees anything; on a tie, and if none has cooled down, the last in the list."""
    listed = list(candidates)
    eligible = [found for found in listed if cooled_down(found.request, step)]
    if not eligible:
        return listed[-1].request
    return min(reversed(eligible), key=lambda found: (not found.freed, found.lost)).request


def preemptible(running: Sequence[Request], classes: Set[RequestClass], step: int) -> list[Request]:
    """The running requests that others may preempt: the least urgent that belong to `classes`. `running` is ordered
    most urgent first. A request is not preempted again before it has produced a token.
    """
    found: list[Request] = []
    for request in reversed(running):
        if found and request.request_class is not found[0].request_class:
            break
        fresh = not request.preemptions or (request.produced > request.resumed_at and cooled_down(request, step))
        if fresh and request.request_class in classes:
            found.append(request)
    return found[::-1]


def cooled_down(request: Request, step: int) -> bool:
    """Whether it has run long enough since it was last preempted."""
    return not request.preemptions or step - request.resumed_step >= COOLDOWN_STEPS

"""The running requests, most urgent class first, then oldest; and every move between waiting, running and done.

Each move keeps the pages, the admission forecast and the batch in step. A beam search moves as one; each member takes
a slot.
"""

from bisect import insort
from operator import attrgetter

from paceline_workers.engine.kv_cache.manager import KVCacheManager
from paceline_workers.engine.scheduling import beams
from paceline_workers.engine.scheduling.admission import Admission
from paceline_workers.engine.scheduling.batch_window import Batching
from paceline_workers.engine.scheduling.cost import CostEstimator
from paceline_workers.engine.scheduling.plan import Counters
from paceline_workers.engine.scheduling.request import Request, RequestStatus, members
from paceline_workers.engine.scheduling.waiting import WaitingQueue


class RunningSet:
    """`known`: all waiting and running requests by id.

    `round` numbers the steps that were asked for: a request preempted in one is not admitted again in it.
    """

    def __init__(self, memory: KVCacheManager, batching: Batching, admission: Admission, costs: CostEstimator) -> None:
        self.running: list[Request] = []
        self.waiting = WaitingQueue()
        self.counters = Counters()
        self.round = 0
        self.known: dict[str, Request] = {}
        self.memory = memory
        self._batching = batching
        self.admission = admission
        self.costs = costs

    def leads(self) -> list[Request]:
        """The running requests, of each beam search its lead alone."""
        return [request for request in self.running if request.beams is None or request.beams.lead is request]

    def enqueue(self, request: Request) -> None:
        self.known[request.id] = request
        self.waiting.add_new(request)

    def admit(self, request: Request, now: float, batch_wait: float) -> None:
        """Run the head of its class, with pages for all its tokens, which must be available."""
        self.waiting.admit(request)
        request.shared = self.memory.place(request)
        if request.beams is not None:
            beams.start(request.beams)
        for member in members(request):
            self._run(member)
        self._record_admission(request, now, batch_wait)

    def admit_parked(self, first: Request, now: float) -> None:
        """Requests parked behind its prompt run on its pages, or queue for want of them."""
        for sibling in self.waiting.take_parked(first):
            if self.admission.fits(sibling, self.running) and self._fork(first, sibling):
                self._record_admission(sibling, now, 0.0)
            else:
                self.waiting.add(sibling)

    def preempt(self, request: Request) -> None:
        """It waits again, and loses what it had computed unless a cached page keeps it."""
        request.computed_before = request.computed
        self._stop(request, RequestStatus.WAITING)
        if request.beams is not None:
            beams.fold(request.beams)
        request.preemptions += 1
        request.preempted_round = self.round
        request.resumed_at = request.produced
        self.counters.preemptions += 1
        self.costs.refresh(request)
        self.waiting.add(request)

    def remove(self, request: Request) -> None:
        """It is done, whether it ran or waited; requests parked behind its prompt queue."""
        if request.state is RequestStatus.RUNNING:
            self._stop(request, RequestStatus.DONE)
        else:
            self.waiting.remove(request)
            request.state = RequestStatus.DONE
        del self.known[request.id]
        for sibling in self.waiting.take_parked(request):
            self.waiting.add(sibling)

    def _run(self, request: Request) -> None:
        request.state = RequestStatus.RUNNING
        insort(self.running, request, key=attrgetter("rank"))
        self._batching.joined(1)
        self.admission.joined(request)

    def _fork(self, parent: Request, child: Request) -> bool:
        """Run on its parent's pages; False, changing nothing, where it cannot, or lacks a page of its own."""
        if not self.memory.fork(parent, child):
            return False
        child.shared = child.computed // self.memory.page_tokens
        if not self.memory.grow(child):
            self.memory.release(child)
            child.computed = child.shared = 0
            return False
        self._run(child)
        return True

    def _stop(self, request: Request, state: RequestStatus) -> None:
        """It runs no more, and holds nothing."""
        for member in members(request):
            self.running.remove(member)
            self.admission.left(member)
            self.memory.release(member)
            member.state = state
            if state is RequestStatus.WAITING:
                self._batching.joined(-1)
                member.computed = member.pending = 0

    def _record_admission(self, request: Request, now: float, batch_wait: float) -> None:
        if request.preemptions:
            request.resumed_step = self.counters.steps
            self.counters.recomputed_tokens += max(request.computed_before - request.computed, 0)
        if request.admitted is not None:
            return
        request.admitted = now
        request.cached = min(request.computed, request.prompt_len)
        request.batch_wait = batch_wait
        self.counters.lookup_tokens += request.wanted if self.memory.prefix_cache else 0
        self.counters.hit_tokens += request.computed

"""Who runs, most urgent class first, then oldest; and every way between waiting, running and gone.

A beam search sits down and gets up as one, each member on a seat.
"""

from bisect import insort
from operator import attrgetter

from paceline_workers.engine.memory.kv import KVCacheManager
from paceline_workers.engine.scheduling.admission import Admission
from paceline_workers.engine.scheduling.appraisal import CostEstimator
from paceline_workers.engine.scheduling.batching import Batching
from paceline_workers.engine.scheduling.beams import members
from paceline_workers.engine.scheduling.plan import Counters
from paceline_workers.engine.scheduling.request import Request, RequestStatus
from paceline_workers.engine.scheduling.waiting import Waiting


class RunningSet:
    """The running requests and their pages; whoever keeps count of either is told here.

    `known`: all who wait or run, by id. `round` numbers the steps that were asked for: who is put back in one does not
    come back in it.
    """

    def __init__(
        self, memory: KVCacheManager, batching: Batching, admission: Admission, appraisal: CostEstimator
    ) -> None:
        self.running: list[Request] = []
        self.waiting = Waiting()
        self.counters = Counters()
        self.round = 0
        self.known: dict[str, Request] = {}
        self.memory = memory
        self._batching = batching
        self.admission = admission
        self.appraisal = appraisal

    def leads(self) -> list[Request]:
        """Those who run, of each beam search its lead alone."""
        return [request for request in self.running if request.beams is None or request.beams.lead is request]

    def enter(self, request: Request) -> None:
        """A new one waits."""
        self.known[request.id] = request
        self.waiting.enter(request)

    def admit(self, request: Request, now: float, batch_wait: float) -> None:
        """Give the head of its class pages for all its tokens, which must be there, and a seat."""
        self.waiting.admit(request)
        request.shared = self.memory.place(request)
        if request.beams is not None:
            request.beams.seat()
        for member in members(request):
            self._seat(member)
        self._note(request, now, batch_wait)

    def follow(self, first: Request, now: float) -> None:
        """Whoever waited for its prompt runs on its pages, or queues for want of them."""
        for sibling in self.waiting.follow(first):
            if self.admission.fits(sibling, self.running) and self._fork(first, sibling):
                self._note(sibling, now, 0.0)
            else:
                self.waiting.add(sibling)

    def put_back(self, request: Request) -> None:
        """Preempt it: it waits again, and what it had computed is lost as far as no page keeps it."""
        request.had = request.computed
        self._leave(request, RequestStatus.WAITING)
        if request.beams is not None:
            request.beams.fold()
        request.preemptions += 1
        request.left_round = self.round
        request.resumed_at = request.produced
        self.counters.preemptions += 1
        self.appraisal.renew(request)
        self.waiting.add(request)

    def remove(self, request: Request) -> None:
        """It is over, whether it ran or waited; who waited for its prompt queues."""
        if request.state is RequestStatus.RUNNING:
            self._leave(request, RequestStatus.DONE)
        else:
            self.waiting.remove(request)
            request.state = RequestStatus.DONE
        del self.known[request.id]
        for sibling in self.waiting.follow(request):
            self.waiting.add(sibling)

    def _seat(self, request: Request) -> None:
        request.state = RequestStatus.RUNNING
        insort(self.running, request, key=attrgetter("rank"))
        self._batching.seat(1)
        self.admission.seated(request)

    def _fork(self, parent: Request, child: Request) -> bool:
        """Let it run on its parent's pages; False, and nothing is changed, where it cannot, or lacks one of its own."""
        if not self.memory.fork(parent, child):
            return False
        child.shared = child.computed // self.memory.page_tokens
        if not self.memory.grow(child):
            self.memory.release(child)
            child.computed = child.shared = 0
            return False
        self._seat(child)
        return True

    def _leave(self, request: Request, state: RequestStatus) -> None:
        """It does not run any more, and holds nothing."""
        for member in members(request):
            self.running.remove(member)
            self.admission.leaves(member)
            self.memory.release(member)
            member.state = state
            if state is RequestStatus.WAITING:
                self._batching.seat(-1)
                member.computed = member.pending = 0

    def _note(self, request: Request, now: float, batch_wait: float) -> None:
        if request.preemptions:
            request.resumed_step = self.counters.steps
            self.counters.recomputed_tokens += max(request.had - request.computed, 0)
        if request.admitted is not None:
            return
        request.admitted = now
        request.cached = min(request.computed, request.prompt_len)
        request.batch_wait = batch_wait
        self.counters.lookup_tokens += request.wanted if self.memory.prefix_cache else 0
        self.counters.hit_tokens += request.computed

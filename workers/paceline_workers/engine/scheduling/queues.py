"""The waiting and the running requests, and every move between waiting, running and done.

Waiting requests hold no pages; they are queued by class, in the order of their response ratio: wait over service, where
`service` is the predicted seconds to compute what is not cached. So short requests go first, and waiting raises every
one. The ratio is tuned to favour short requests: every wait counts HEAD_START seconds more, so that new requests have
an order too, and service counts to the power of SERVICE_POWER (1 is the textbook's ratio; larger powers approach
shortest-first, which bounds no p99). Both were chosen on Azure's log to keep the p99 of first come, first served.
Requests of about equal service (a quarter of an octave) share a bucket, in which that order is arrival; so finding the
head of a class costs one comparison for each bucket, however many wait. Preempted requests come before all new ones of
their class, oldest first: their streams are open.

Bound: the oldest request of a class becomes the head when it and the oldest ones before it make up at most OLDEST_SHARE
of the service given; so one that needs S seconds with all older ones waits for at most S / OLDEST_SHARE seconds of
service. Ratios alone would starve a long request while short ones arrive faster than they are served.
A choice of a prompt that another request of its group is about to compute is parked behind that, in no bucket.
Known hole: a prefix cached later is noticed when a request heads its bucket or `round_robin` reaches it, a few a step.

Running requests are ordered most urgent class first, then oldest. Each move keeps the pages, the admission forecast and
the batch consistent. A beam search moves as one; each member takes a slot.
"""

from bisect import insort
from collections import deque
from collections.abc import Iterator
from math import floor, inf, log2
from operator import attrgetter

from paceline_core.registry.enums import RequestClass
from paceline_workers.engine.kv_cache.manager import KVCacheManager
from paceline_workers.engine.scheduling import beams
from paceline_workers.engine.scheduling.admission import Admission
from paceline_workers.engine.scheduling.cost import CostEstimator
from paceline_workers.engine.scheduling.plan import Counters
from paceline_workers.engine.scheduling.request import URGENCY, Request, RequestStatus, members

OLDEST_SHARE = 1 / 8
HEAD_START = 0.1
SERVICE_POWER = 1.25
LOOKUPS = 2
_PREEMPTED_BUCKET = -(1 << 30)
_PARKED_BUCKET = _PREEMPTED_BUCKET - 1
_BUCKETS_PER_OCTAVE = 4
_MIN_SERVICE = 1e-9


class WaitingQueue:
    """All waiting requests. Each stays in the bucket that matched its service when it was added."""

    def __init__(self) -> None:
        self._buckets: dict[RequestClass, dict[int, deque[Request]]] = {name: {} for name in RequestClass}
        self._first: dict[str, Request] = {}
        self._parked: dict[str, list[Request]] = {}
        self.counts = dict.fromkeys(RequestClass, 0)
        self._served = dict.fromkeys(RequestClass, 0.0)
        self._oldest_served = dict.fromkeys(RequestClass, 0.0)
        self._round: Iterator[Request] = iter(())

    def __len__(self) -> int:
        return sum(self.counts.values())

    def add(self, request: Request) -> None:
        request.bucket = bucket(request)
        queue = self._buckets[request.request_class].setdefault(request.bucket, deque())
        if queue and queue[-1].arrival > request.arrival:
            insort(queue, request, key=attrgetter("arrival"))
        else:
            queue.append(request)
        self.counts[request.request_class] += 1

    def add_new(self, request: Request) -> None:
        """Queue a new request, or park it behind the first one of its group."""
        first = self._first.setdefault(request.group, request) if request.group else request
        alike = (first.tokens, first.salt, first.unsalted) == (request.tokens, request.salt, request.unsalted)
        if first is request or not alike:  # they cannot share pages
            self.add(request)
            return
        request.bucket = _PARKED_BUCKET
        self._parked.setdefault(request.group, []).append(request)
        self.counts[request.request_class] += 1

    def take_parked(self, first: Request) -> list[Request]:
        """Remove and return the requests parked behind one that has its first token or has ended."""
        if self._first.get(first.group) is not first:
            return []
        del self._first[first.group]
        parked = self._parked.pop(first.group, [])
        for request in parked:
            self.counts[request.request_class] -= 1
        return parked

    def remove(self, request: Request) -> None:
        """Remove any request; at once if it heads its bucket."""
        self.counts[request.request_class] -= 1
        if request.bucket == _PARKED_BUCKET:
            self._parked[request.group].remove(request)
            return
        buckets = self._buckets[request.request_class]
        buckets[request.bucket].remove(request)
        if not buckets[request.bucket]:
            del buckets[request.bucket]

    def admit(self, request: Request) -> None:
        """Remove the head of its class. Oldest requests' service beyond their share does not count against the next."""
        name = request.request_class
        if request is self._oldest(name):
            self._oldest_served[name] += request.service
        self._served[name] += request.service
        self._oldest_served[name] = min(self._oldest_served[name], OLDEST_SHARE * self._served[name])
        self.remove(request)

    def head(self, name: RequestClass, now: float) -> Request | None:
        buckets = self._buckets[name]
        if _PREEMPTED_BUCKET in buckets:
            return buckets[_PREEMPTED_BUCKET][0]
        oldest = self._oldest(name)
        if oldest and self._oldest_served[name] + oldest.service <= OLDEST_SHARE * self._served[name]:
            return oldest
        return max(
            [queue[0] for queue in buckets.values()],
            key=lambda request: (response_ratio(request, now), -request.service),
            default=None,
        )

    def round_robin(self, count: int = LOOKUPS) -> Iterator[Request]:
        """At most the next `count` requests, in rotation."""
        for _ in range(min(count, len(self))):
            request = next(self._round, None)
            if request is None:
                queues = [queue for buckets in self._buckets.values() for queue in buckets.values()]
                self._round = iter([request for queue in queues for request in queue])
            elif request.state is RequestStatus.WAITING and request.bucket != _PARKED_BUCKET:
                yield request

    def oldest(self) -> dict[RequestClass, Request]:
        """The oldest request of each class that has one."""
        heads = {name: self._oldest(name) for name, buckets in self._buckets.items() if buckets}
        return {name: head for name, head in heads.items() if head}

    def ahead(self, request: Request) -> int:
        """Tokens to compute in its class's buckets without longer requests: at least these go before it."""
        limit = _octave(request.service)
        buckets = self._buckets[request.request_class].items()
        return sum(other.uncached for number, queue in buckets if number <= limit for other in queue)

    def tokens(self) -> dict[RequestClass, int]:
        """Tokens by class that are left to compute, less the prefix that was cached at the last lookup."""
        return {
            name: sum(request.uncached for queue in buckets.values() for request in queue)
            for name, buckets in self._buckets.items()
        }

    def _oldest(self, name: RequestClass) -> Request | None:
        return min([queue[0] for queue in self._buckets[name].values()], key=attrgetter("arrival"), default=None)


def response_ratio(request: Request, now: float) -> float:
    """The order of waiting requests within a class; preempted ones come before all others."""
    return inf if request.preemptions else ratio(now - request.arrival, request.service)


def ratio(wait: float, service: float) -> float:
    """The response ratio (less one), tuned to favour short requests."""
    return float((wait + HEAD_START) / service**SERVICE_POWER)


def bucket(request: Request) -> int:
    """The quarter octave of its service, or the bucket of preempted requests."""
    return _PREEMPTED_BUCKET if request.preemptions else _octave(request.service)


def _octave(service: float) -> int:
    return floor(_BUCKETS_PER_OCTAVE * log2(max(service, _MIN_SERVICE)))


class RunningSet:
    """The running requests, and the moves. `known`: all waiting and running requests by id.

    `joined`: how many requests have started to run so far, minus preemptions (see `batch_window`).
    `round` counts the steps: a request preempted in one is not admitted again in it.
    """

    def __init__(self, memory: KVCacheManager, admission: Admission, costs: CostEstimator) -> None:
        self.running: list[Request] = []
        self.waiting = WaitingQueue()
        self.counters = Counters()
        self.round = self.joined = 0
        self.known: dict[str, Request] = {}
        self.memory = memory
        self.admission = admission
        self.costs = costs

    def leads(self) -> list[Request]:
        """The running requests; of each beam search only its lead."""
        return [request for request in self.running if request.beams is None or request.beams.lead is request]

    def enqueue(self, request: Request) -> None:
        self.known[request.id] = request
        self.waiting.add_new(request)

    def estimate(self, request: Request) -> None:
        """Look up what a waiting request has cached now, and so what is left to compute."""
        self.costs.refresh(request, self.memory.uncached(request))

    def refresh(self, request: Request) -> bool:
        """Look up what a waiting request has cached now; returns whether its bucket changed."""
        self.estimate(request)
        if bucket(request) == request.bucket:
            return False
        self.waiting.remove(request)
        self.waiting.add(request)
        return True

    def admit(self, request: Request, now: float, batch_wait: float) -> None:
        """Run the head of its class, with pages for all its tokens, which must be available."""
        self.waiting.admit(request)
        request.shared = self.memory.place(request)
        self._record_admission(request, now, batch_wait)
        if request.beams is None:
            self._run(request)
        else:
            beams.start(request.beams)
            for member in request.beams.members:
                self._run(member)

    def admit_parked(self, first: Request, now: float) -> None:
        """Run the requests parked behind its prompt on its pages; queue those for which pages are lacking."""
        for sibling in self.waiting.take_parked(first):
            if self.admission.fits(sibling, self.running) and self._fork(first, sibling):
                self._record_admission(sibling, now, 0.0)
            else:
                self.waiting.add(sibling)

    def preempt(self, request: Request) -> None:
        """It waits again, and loses what it had computed, except for pages that stay cached."""
        request.computed_before = request.computed
        self._stop(request, RequestStatus.WAITING)
        if request.beams is not None:
            beams.fold(request.beams)
        request.preemptions += 1
        request.preempted_round = self.round
        request.resumed_at = request.produced
        self.counters.preemptions += 1
        self.estimate(request)
        self.waiting.add(request)

    def remove(self, request: Request) -> None:
        """It is done, whether it ran or waited; requests parked behind its prompt are queued."""
        parked = self.waiting.take_parked(request)
        if request.state is RequestStatus.RUNNING:
            self._stop(request, RequestStatus.DONE)
        else:
            self.waiting.remove(request)
            request.state = RequestStatus.DONE
        del self.known[request.id]
        for sibling in parked:
            self.waiting.add(sibling)

    def _run(self, request: Request) -> None:
        request.state = RequestStatus.RUNNING
        insort(self.running, request, key=lambda other: (URGENCY[other.request_class], other.arrival))
        self.joined += 1
        self.admission.joined(request)

    def _fork(self, parent: Request, child: Request) -> bool:
        """Run on its parent's pages; False, changing nothing, if it cannot or lacks a page of its own."""
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
        """It no longer runs, and holds nothing."""
        for member in members(request):
            self.running.remove(member)
            self.admission.left(member)
            self.memory.release(member)
            member.state = state
            if state is RequestStatus.WAITING:
                self.joined -= 1
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
        self.counters.lookup_tokens += len(request.tokens) if self.memory.prefix_cache else 0
        self.counters.hit_tokens += request.computed

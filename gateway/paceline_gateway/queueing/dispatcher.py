"""One service's queues and its workers: which requests wait, which worker each gets, which are shed. Pure.

Requests wait here, not at the workers: a request is dispatched only when a worker has a free slot and room for more
work, so a new worker takes its share of the requests that already wait. A request that waits while no worker is
eligible is held: it is in the same queues, with a cap of its own, and they drain at the pace of the first worker.

Streams that lost their worker go first; then by class (`turns`), within a class by tenant and prefix. While a more
urgent request waits for room, no other request is dispatched, except from starving classes. Batch and offline leave
free what interactive requests needed recently (`_peak`): at most half of each worker's slots and half of the work that
a worker may have in advance. While the service is `overloaded`, batch and offline requests are also deferred as long as
an interactive request waits that can still be in time (`StarvationGuard`), and new offline ones are refused. Gateways
tell each other what tenants were served (`SharedFairness`). Known hole: each gateway uses its own part of the workers'
slots, so a gateway with few tenants serves each of them more.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import inf

from paceline_core.errors import Code, RequestError
from paceline_core.registry.enums import RequestClass, ShedReason
from paceline_gateway.queueing.fair_queue import FairQueue, StarvationGuard
from paceline_gateway.queueing.queued_request import QueuedRequest
from paceline_gateway.queueing.shedding import (
    DispatchRate,
    ExceededLimit,
    ShedDecision,
    choose_victim,
    misses_deadline,
    offline_refusal,
)
from paceline_gateway.queueing.tenant_shares import TenantShares
from paceline_gateway.request.group_testing import PROOF, SuspectGroup, blame, proof, recurs
from paceline_gateway.routing.policies import RoutingRequest
from paceline_gateway.routing.worker import PLACES, Worker
from paceline_gateway.routing.worker_pool import WorkerPool

URGENT = RequestClass.INTERACTIVE
WINDOW_S = 60.0


class WindowedMax:
    """The largest value of the last one to two windows; O(1). Older values are forgotten.

    `now` is monotonic seconds.
    """

    def __init__(self) -> None:
        self._began = 0.0
        self._current = 0
        self._before = 0

    def observe(self, value: int, now: float) -> int:
        """Add a value; returns the recent maximum."""
        age = now - self._began
        if age >= WINDOW_S:
            self._before = self._current if age < 2 * WINDOW_S else 0
            self._began, self._current = now, 0
        self._current = max(self._current, value)
        return max(self._current, self._before)


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """`held`: the most requests that wait while no worker is eligible; `size`: the most bytes of waiting bodies."""

    held: int
    size: int


class Dispatcher:
    """`requests` counts the waiting requests by tenant; `size` is the bytes of their bodies.

    `overloaded`: its service cannot keep its promise to interactive requests.
    """

    def __init__(self, pool: WorkerPool, caps: QueueLimits) -> None:
        self.pool = pool
        self.queues = {name: FairQueue() for name in RequestClass}
        self.turns = StarvationGuard(self.queues)
        self.caps = caps
        self._drain = {name: DispatchRate() for name in RequestClass}
        self._served = {name: DispatchRate() for name in RequestClass}
        self._in_flight: dict[int, Worker] = {}
        self._parts: dict[int, SuspectGroup] = {}
        self._urgent = 0
        self._peak = WindowedMax()
        self.requests = TenantShares()
        self._sizes = TenantShares()
        self._running = self._run_again = False
        self.overloaded = False

    @property
    def urgent(self) -> int:
        """Interactive requests that wait or are at workers."""
        return self._urgent + len(self.queues[URGENT])

    @property
    def waiting(self) -> int:
        return self.requests.total

    @property
    def size(self) -> int:
        return self._sizes.total

    @property
    def expired(self) -> list[QueuedRequest]:
        """Requests past their deadline; they stay until `withdraw`."""
        return [queued for queue in self.queues.values() for queued in queue.late]

    def held(self, now: float) -> int:
        """Requests that wait because no worker is eligible."""
        return self.waiting if self.waiting and not self.pool.eligible(now) else 0

    def ahead(self, name: RequestClass) -> int:
        """Requests that wait in a class's queue and in more urgent ones."""
        return sum(len(queue) for other, queue in self.queues.items() if PLACES[other] <= PLACES[name])

    def wait_s(self, name: RequestClass, now: float) -> float | None:
        """Seconds until all requests in a class's queue will have been dispatched; None where its rate is unknown."""
        queue, rate = self.queues[name], self._served[name]
        if not len(queue):
            return 0.0
        return queue.cost / rate.per_second(now) if rate.known(now) and rate.per_second(now) > 0 else None

    def refusal(self, request_class: RequestClass, size: int, limit: int, now: float) -> RequestError | None:
        """The error if one more request, of an unknown tenant, could not wait here."""
        if self._refuses(request_class):
            return offline_refusal()
        full = next(self._full(request_class, size, limit, now), None)
        if full is None:
            return None
        return RequestError(full.code, full.why, retry_after=self._retry_after(request_class, now))

    def shed(self, queued: QueuedRequest, limit: int, now: float) -> ShedDecision | None:
        """The request that must go so that this one may join: itself, or a waiting one; None if none must go.

        `limit` is its class's cap on waiting requests. Call again when the named request has left.
        """
        name = queued.request_class
        if self._refuses(name):
            return ShedDecision(queued, ShedReason.OVERLOADED, offline_refusal())
        for full in self._full(name, queued.size, limit, now):
            own = full.reason is ShedReason.QUEUE_FULL
            queues = [self.queues[name]] if own else reversed(self.queues.values())
            return choose_victim(queued, full, queues, self._retry_after(name, now))
        return misses_deadline(queued, self.queues[name], self._served[name], now)

    def enqueue(self, queued: QueuedRequest, deadline: float, now: float, *, again: bool = False) -> Worker | None:
        """Wait for a worker until `deadline`; returns the worker if the request is dispatched at once.

        `again`: its worker failed it, so it waits before the others.
        """
        queued.deadline = deadline
        if again:
            self.rejoin(queued, deadline)
            return None
        worker = self.pass_by(queued, now)
        if worker is None:
            self.join(queued, now)
        return worker

    def withdraw(self, queued: QueuedRequest) -> None:
        if self.queues[queued.request_class].leave(queued):
            self._left(queued)

    def dispatch(self, now: float) -> list[tuple[QueuedRequest, Worker]]:
        """Every request that can go now, in order, each with a worker whose slot is already taken."""
        self.pool.reserved = self._peak.observe(0, now)
        for queue in self.queues.values():
            queue.expire(now)
            if (suspect := queue.suspect) is not None and now < suspect.sure_until:
                self.pool.make_way(suspect.sure_until, now)
        self.turns.deferred = self.overloaded and self.queues[URGENT].in_time
        assigned: list[tuple[QueuedRequest, Worker]] = []
        while self.requests.total and (gone := self._next(now)) is not None:
            assigned.append(gone)
        return assigned

    def run(
        self,
        now: Callable[[], float],
        assigned: Callable[[QueuedRequest, Worker], None],
        expired: Callable[[QueuedRequest], None],
    ) -> bool:
        """Dispatch, and report each request that goes to a worker or is past its deadline, until nothing changes.

        A call from within starts another round here, does not nest, and returns False.
        """
        self._run_again = self._running
        if self._running:
            return False
        self._running = again = True
        try:
            while again:
                self._run_again = False
                for queued, worker in self.dispatch(now()):
                    assigned(queued, worker)
                for queued in self.expired:
                    expired(queued)
                again = self._run_again
        finally:
            self._running = False
        return True

    def release(self, queued: QueuedRequest, now: float, *, suspect: bool) -> None:
        """Free the slot at its worker; `suspect`: the worker failed it."""
        worker = self._in_flight.pop(queued.id, None)
        self._parts.pop(queued.id, None)
        if worker is not None:
            _end_trial(worker, queued)
            worker.doubtful.discard(queued.id)
            worker.recurring.discard(queued.id)
            self._urgent -= queued.request_class is URGENT
            worker.give(queued.id, now, failed=suspect)
            queued.avoid |= {worker.name}

    def pass_by(self, queued: QueuedRequest, now: float) -> Worker | None:
        """Skip the queue while it is empty and a worker has room; None if the request must `join`."""
        if self.requests.total:
            return None
        name, queued.joined = queued.request_class, now
        self.pool.reserved = self._peak.observe(self._urgent + (name is URGENT), now)
        worker = self._assign(queued, now)
        if worker is not None:
            self.queues[name].pass_by(queued)
        return worker

    def join(self, queued: QueuedRequest, now: float) -> None:
        """Wait at the end of the tenant's queue."""
        queued.joined = now
        self._join(queued, front=False)
        self._peak.observe(len(self.queues[URGENT]) + self._urgent, now)

    def rejoin(self, queued: QueuedRequest, deadline: float) -> None:
        """Wait again, before the others: its worker failed it."""
        queued.deadline = deadline
        self._join(queued, front=True)

    def died(self, worker: Worker) -> bool:
        """Assign each request that ran at a dead worker its `part` in that; False if all of them had one already."""
        running = [number for number, other in self._in_flight.items() if other is worker]
        fresh = [number for number in running if number not in self._parts]
        here = set(fresh)
        likely, doubtful = worker.trials, worker.unbegun.keys() | worker.doubtful | worker.recurring
        if worker.report is None or worker.report.gateways <= 1:
            likely = likely | worker.recurring
        self._parts |= blame(fresh, likely & here, doubtful & here)
        return bool(fresh)

    def part(self, queued: QueuedRequest) -> SuspectGroup | None:
        """Its part in the death of its worker; None if that worker did not die while the request ran there."""
        return self._parts.get(queued.id)

    def got_on(self, queued: QueuedRequest, tokens: int, now: float) -> bool:
        """Note that a watched request brought `tokens` more than its client had; True if that ends its trial."""
        worker = self._in_flight.get(queued.id)
        if worker is not None:
            (worker.recurring.add if recurs(queued.died_at, tokens) else worker.recurring.discard)(queued.id)
        if tokens >= queued.died_at + PROOF:
            queued.died_at = 0
        if not queued.suspect or tokens < proof(sure=now < queued.sure_until, past=queued.past):
            return False
        queued.suspect = False
        if worker is not None:
            _end_trial(worker, queued)
            if tokens < PROOF:
                worker.doubtful.add(queued.id)
        return True

    def _refuses(self, name: RequestClass) -> bool:
        return self.overloaded and name is RequestClass.OFFLINE

    def _full(self, name: RequestClass, size: int, limit: int, now: float) -> Iterator[ExceededLimit]:
        """The limits that have no room for one more request."""
        queue, caps, waiting = self.queues[name], self.caps, self.requests.total
        if queue.shares.total >= limit and (waiting or not self.pool.has_room(now, name)):
            why = f"The queue of {name} requests is full: {queue.shares.total} waiting."
            yield ExceededLimit(queue.shares, 1, limit, ShedReason.QUEUE_FULL, Code.QUEUE_FULL, why)
        if self._sizes.total + size > caps.size:
            why = "The waiting requests are too large together."
            yield ExceededLimit(self._sizes, size, caps.size, ShedReason.BYTES, Code.QUEUE_FULL, why)
        if waiting >= caps.held and not self.pool.eligible(now):
            why = f"No worker is ready, and too many wait for one: {waiting}."
            yield ExceededLimit(self.requests, 1, caps.held, ShedReason.NO_WORKER, Code.NO_CAPACITY, why)

    def _retry_after(self, name: RequestClass, now: float) -> float:
        return self._drain[name].retry_after(len(self.queues[name]) + 1, now)

    def _next(self, now: float) -> tuple[QueuedRequest, Worker] | None:
        """Dispatch the next request."""
        for queue in self.queues.values():
            if (suspect := queue.suspect) is not None and (gone := self._send(suspect, now)) is not None:
                return gone
        for queue in self.queues.values():
            if (resumed := queue.resumed) is not None and (gone := self._send(resumed, now)) is not None:
                return gone
        for name in self.turns.due(now):
            if (gone := self._place(name, now)) is not None:
                self.turns.took(name)
                return gone
        for name, queue in self.queues.items():
            if queue.willing:
                gone = self._place(name, now)
                if gone is not None:
                    self.turns.went(name, now)
                return gone
        return None

    def _place(self, name: RequestClass, now: float) -> tuple[QueuedRequest, Worker] | None:
        queue, prefixes = self.queues[name], self.pool.prefixes
        roomy = self.pool.roomy(now, name) if queue.willing > 1 else []

        def cached(queued: QueuedRequest) -> int:
            return max(prefixes.cached(worker, queued.keys, now) for worker in roomy) if queued.keys else 0

        queued = queue.next(cached if roomy else None)
        return None if queued is None else self._send(queued, now)

    def _send(self, queued: QueuedRequest, now: float) -> tuple[QueuedRequest, Worker] | None:
        worker = self._assign(queued, now, now < queued.sure_until if queued.suspect else None)
        if worker is None:
            return None
        self.queues[queued.request_class].went(queued)
        self._left(queued)
        return queued, worker

    def _assign(self, queued: QueuedRequest, now: float, sure: bool | None = None) -> Worker | None:
        """Take a slot at the worker that routing picks; None while no worker has room. `sure` is that of `assign`."""
        name = queued.request_class
        asked = RoutingRequest(queued.prompt_tokens, name, queued.expected_output, queued.keys, queued.prompt_bytes)
        pick = self.pool.assign(queued.id, asked, now, queued.avoid, sure, stream=queued.stream)
        if pick is None:
            return None
        worker, queued.cached_tokens = pick.worker, pick.cached_tokens
        self._in_flight[queued.id] = worker
        if queued.suspect:
            worker.trials.add(queued.id)
            worker.shut = queued.sure_until
        elif queued.bystander:
            worker.doubtful.add(queued.id)
        self._urgent += name is URGENT
        self._drain[name].departed(now)
        self._served[name].departed(now, queued.cost)
        return worker

    def _join(self, queued: QueuedRequest, *, front: bool) -> None:
        self.queues[queued.request_class].join(queued, front=front)
        self.requests.add(queued.tenant, queued.weight, 1)
        self._sizes.add(queued.tenant, queued.weight, queued.size)

    def _left(self, queued: QueuedRequest) -> None:
        self.requests.remove(queued.tenant, 1)
        self._sizes.remove(queued.tenant, queued.size)


def _end_trial(worker: Worker, queued: QueuedRequest) -> None:
    if queued.id in worker.trials:
        worker.trials.discard(queued.id)
        worker.shut = -inf

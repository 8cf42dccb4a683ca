"""`FairQueue`: one class's queue. `StarvationGuard`: the order of the classes.

A queue is fair between tenants; within each, requests that can still be in time go before overdue ones, and else first
come, first served (`TenantQueue`). The tenant with the least counter is next (`accounts`). A request is charged its
uncached prompt tokens and twice the expected output when it is dispatched, and its actual use when it ends. A tenant
that becomes active may be behind the others by the largest recent charge: several of its small requests may go together
like one large one. Within limits, cached prefixes go first: a tenant that was served at most one request more than the
next one may be preferred for what workers have cached (D2LPM, Cao et al. 2025). That compares the first DEPTH requests
of CANDIDATES tenants, and no first request is overtaken more than OVERTAKEN times.
Requests that lost their worker wait before all others. Suspects wait beside the queue, since each needs a worker
without another suspect. Late requests are set aside and never dispatched. Invariant: every request that joined is in
exactly one of these places until it leaves.

The most urgent class is next, except that no class starves. A class starves when its oldest request has waited for
STARVED_S, or for half of its time to the deadline if that is less. Then each dispatch from a more urgent class earns
the starving class a part of a turn, by the shares that workers give to classes: with all three backlogged, eight
interactive requests let two batch and one offline request go. A starving class with a whole turn goes first, if there
is room for its class. While classes are deferred, STARVED_S does not count: a class starves only after half of its
oldest request's time to the deadline, or to its own target.
"""

import heapq
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from math import inf

from paceline_core.registry.enums import RequestClass
from paceline_gateway.queueing.queued_request import OUTPUT_WEIGHT, QueuedRequest
from paceline_gateway.queueing.tenant_queue import OVERTAKEN, TenantQueue
from paceline_gateway.queueing.tenant_shares import TenantShares
from paceline_gateway.queueing.virtual_counters import VirtualTokenCounters
from paceline_gateway.routing.worker import SHARES

CANDIDATES = 4
DEPTH = 4
FADING = 0.99
MAX_REPORTED = 4096
"""The most tenants for which served tokens are kept until `taken`."""
Cached = Callable[[QueuedRequest], int]


class FairQueue:
    """`prompt_tokens`, `cost` and `size` are sums over the waiting requests; `shares` counts them by tenant."""

    def __init__(self) -> None:
        self.accounts = VirtualTokenCounters()
        self.shares = TenantShares()
        self.prompt_tokens = 0
        self.cost = 0
        self.size = 0
        self._all: OrderedDict[int, QueuedRequest] = OrderedDict()
        self._own: dict[str, TenantQueue] = {}
        self._due: list[tuple[float, int]] = []
        self.costs: dict[str, int] = {}
        """By tenant, the expected charge of its waiting requests without any cached prefix."""
        self._resumed: dict[int, QueuedRequest] = {}
        self._again: dict[int, QueuedRequest] = {}
        self._suspects: dict[int, QueuedRequest] = {}
        self._late: dict[int, QueuedRequest] = {}
        self._deadlines: list[tuple[float, int]] = []
        self._largest = 0.0
        self._fresh: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[QueuedRequest]:
        return iter(self._all.values())

    @property
    def nearest_deadline(self) -> float | None:
        """The earliest deadline of the requests that are not late."""
        while self._deadlines:
            deadline, number = self._deadlines[0]
            queued = self._all.get(number)
            if queued is not None and queued.deadline == deadline and number not in self._late:
                return deadline
            heapq.heappop(self._deadlines)
        return None

    @property
    def oldest_request(self) -> QueuedRequest | None:
        """The request that has waited longest."""
        return next(iter(self._all.values()), None)

    @property
    def oldest(self) -> float | None:
        """When the oldest request joined."""
        oldest_request = self.oldest_request
        return None if oldest_request is None else oldest_request.joined

    @property
    def late(self) -> list[QueuedRequest]:
        """Requests past their deadline that have not left yet."""
        return list(self._late.values())

    @property
    def willing(self) -> int:
        """How many requests can be dispatched, suspects aside."""
        return len(self._all) - len(self._late) - len(self._suspects)

    @property
    def in_time(self) -> bool:
        """Whether a request waits that can still be in time."""
        return any(own.in_time for own in self._own.values())

    @property
    def suspect(self) -> QueuedRequest | None:
        """The first request of which a worker may have died."""
        return next(iter(self._suspects.values()), None)

    @property
    def resumed(self) -> QueuedRequest | None:
        """The first request whose stream has begun and must continue."""
        return next(iter(self._resumed.values()), None)

    def join(self, queued: QueuedRequest, *, front: bool = False) -> None:
        """Wait at the end of the tenant's queue, or before all others."""
        self._all[queued.id] = queued
        in_time = ((one.deadline, one.id) for one in self._all.values() if one.id not in self._late)
        self._schedule(self._deadlines, (queued.deadline, queued.id), in_time)
        if front:
            self._all.move_to_end(queued.id, last=False)
            own = self._suspects if queued.suspect else self._resumed if queued.resumed else self._again
            own[queued.id] = queued
        else:
            self._own.setdefault(queued.tenant, TenantQueue()).join(queued)
            if queued.due < inf:
                targets = ((one.due, one.id) for one in self._all.values() if one.due < inf)
                self._schedule(self._due, (queued.due, queued.id), targets)
            self.accounts.enter(queued.tenant, queued.weight, self._largest)
        self._count(queued, 1)
        self.shares.add(queued.tenant, queued.weight, 1)

    def leave(self, queued: QueuedRequest) -> bool:
        """Remove a request; False if it is not in the queue."""
        if self._all.pop(queued.id, None) is None:
            return False
        if self._late.pop(queued.id, None) is None:
            self._step_out(queued)
        self._count(queued, -1)
        self.shares.remove(queued.tenant, 1)
        if not self.shares.of(queued.tenant):
            del self.costs[queued.tenant]
        return True

    def expire(self, now: float) -> None:
        """Requests that are overdue let others of their tenant go first; those past their deadline never go."""
        while self._due and self._due[0][0] <= now:
            _, number = heapq.heappop(self._due)
            if (queued := self._all.get(number)) is not None and queued in self._own.get(queued.tenant, ()):
                self._own[queued.tenant].set_overdue(queued)
        while (deadline := self.nearest_deadline) is not None and deadline <= now:
            _, number = heapq.heappop(self._deadlines)
            queued = self._late[number] = self._all[number]
            self._step_out(queued)

    def next(self, cached: Cached | None) -> QueuedRequest | None:
        """The next request. `cached`: how many of its keys a worker with room has; None if no worker has room."""
        if self._resumed or self._again:
            return self.resumed or next(iter(self._again.values()))
        tenants = self.accounts.first(CANDIDATES if cached else 1, self._largest)
        if not tenants:
            return None
        turn = self._own[tenants[0]].first
        if cached is None or turn.overtaken >= OVERTAKEN:
            return turn
        candidates: list[QueuedRequest] = []
        for tenant in tenants:
            waiting = list(islice(self._own[tenant].candidates, DEPTH))
            candidates += waiting[:1] if waiting[0].overtaken >= OVERTAKEN else waiting
        return max(candidates, key=cached)

    def went(self, queued: QueuedRequest) -> None:
        """A request was dispatched: charge it once, and count the requests that it overtook."""
        if len(self._all) > 1 and queued in self._own.get(queued.tenant, ()):
            for tenant in {queued.tenant, *self.accounts.first(1)}:
                self._own[tenant].overtake(queued)
        if not queued.charged:
            self.accounts.charge(queued.tenant, self._first_charge(queued), queued.weight)
        self.leave(queued)

    def pass_by(self, queued: QueuedRequest) -> None:
        """A request was dispatched at once, past an empty queue: charge it."""
        credit = self._largest
        self.accounts.pass_by(queued.tenant, self._first_charge(queued), queued.weight, credit)

    def settle(self, queued: QueuedRequest, used: float) -> None:
        """A request ended after `used` tokens (output counts twice): correct its tenant's counter if it was charged."""
        if queued.charged:
            tokens = used - queued.charged
            self.accounts.charge(queued.tenant, tokens, queued.weight)
            self._note_service(queued, tokens)

    def taken(self) -> dict[str, float]:
        """What each tenant was served since the last call, in tokens over weight."""
        fresh, self._fresh = self._fresh, {}
        return fresh

    def elsewhere(self, tenant: str, served: float) -> None:
        """Another gateway served this tenant so much, in tokens over weight."""
        self.accounts.charge(tenant, served, 1)

    def newest(self, tenant: str) -> QueuedRequest | None:
        """The tenant's last request to join, of those that have not been served."""
        own = self._own.get(tenant)
        return own.newest if own else None

    def _schedule(
        self, heap: list[tuple[float, int]], entry: tuple[float, int], live: Iterable[tuple[float, int]]
    ) -> None:
        """Add a time and its request; a heap of mostly outdated entries is made again of the live ones."""
        heapq.heappush(heap, entry)
        if len(heap) > 2 * len(self._all) + 64:
            heap[:] = live
            heapq.heapify(heap)

    def _first_charge(self, queued: QueuedRequest) -> float:
        """The charge for a request's first dispatch."""
        uncached = max(queued.prompt_tokens - queued.cached_tokens, 1)
        tokens = queued.charged = float(uncached + OUTPUT_WEIGHT * queued.expected_output)
        self._largest = max(tokens / queued.weight, self._largest * FADING)
        self._note_service(queued, tokens)
        return tokens

    def _note_service(self, queued: QueuedRequest, tokens: float) -> None:
        if len(self._fresh) < MAX_REPORTED or queued.tenant in self._fresh:
            self._fresh[queued.tenant] = self._fresh.get(queued.tenant, 0.0) + tokens / queued.weight

    def _step_out(self, queued: QueuedRequest) -> None:
        if any(own.pop(queued.id, None) is not None for own in (self._resumed, self._again, self._suspects)):
            return
        own = self._own[queued.tenant]
        own.leave(queued)
        if not own:
            del self._own[queued.tenant]
            self.accounts.leave(queued.tenant)

    def _count(self, queued: QueuedRequest, sign: int) -> None:
        self.prompt_tokens += sign * queued.prompt_tokens
        self.cost += sign * queued.cost
        self.size += sign * queued.size
        self.costs[queued.tenant] = self.costs.get(queued.tenant, 0) + sign * queued.cost


STARVED_S = {RequestClass.BATCH: 30.0, RequestClass.OFFLINE: 120.0}


class StarvationGuard:
    """`promoted` counts requests dispatched before more urgent ones, by class; a reader may clear it.

    `deferred`: these classes wait longer before they starve.
    """

    def __init__(self, queues: Mapping[RequestClass, FairQueue]) -> None:
        self._queues = queues
        self._earned = dict.fromkeys(STARVED_S, 0.0)
        self.promoted: Counter[RequestClass] = Counter()
        self.deferred = False

    def due(self, now: float) -> list[RequestClass]:
        """Starving classes that have earned a turn."""
        for name in self._earned:
            if self._earned[name] and not self._starving(name, now):
                self._earned[name] = 0.0
        return [name for name, earned in self._earned.items() if earned >= 1]

    def took(self, name: RequestClass) -> None:
        """A starving class used its turn."""
        self._earned[name] -= 1
        self.promoted[name] += 1

    def went(self, urgent: RequestClass, now: float) -> None:
        """A request of this class was dispatched: starving classes that are less urgent earn a part of a turn."""
        for name in self._earned:
            if SHARES[name] < SHARES[urgent] and self._starving(name, now):
                self._earned[name] = min(self._earned[name] + SHARES[name] / SHARES[urgent], 1.0)

    def _starving(self, name: RequestClass, now: float) -> bool:
        oldest_request = self._queues[name].oldest_request
        if oldest_request is None:
            return False
        half_s = (oldest_request.deadline - oldest_request.joined) / 2
        limit_s = oldest_request.in_time_s / 2 if self.deferred else STARVED_S[name]
        return now - oldest_request.joined >= min(limit_s, half_s)

"""One class's queue: fair between tenants, first come first served within each, cached prefixes first within limits.

Whose turn it is, his counter says (`accounts`). A request is charged its uncached prompt tokens and twice the output
that is expected when it goes, and what it really used when it ends. Who becomes active may be as far behind the others
as the largest charge lately: a tenant's small requests may come together as another's large one does. Those who were
served no more than one request beyond the one whose turn it is may be preferred for what workers have cached (D2LPM,
Cao et al. 2025): of CANDIDATES tenants the first DEPTH requests are looked at, and nobody's first request is overtaken
more than OVERTAKEN times.

Who was served and lost its worker stands before all. Suspects stand beside the queue, since each waits for a worker
without one. Who is past its deadline stands aside until told so: it is never given out. Invariant: every request that
joined stands in exactly one place until it leaves.

Which class is next: the most urgent, but nobody is starved.

A class whose oldest has waited for STARVED_S, or for half of what it may wait if that is less, is starving. Then every
request of a more urgent class that goes earns it a part of a turn, by the shares that workers give to classes: with
all three backlogged eight interactive requests let two of batch and one of offline go. A starving class whose turn it
is goes first, if there is room for its kind.
"""

import heapq
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping
from itertools import islice

from paceline_core.registry.enums import RequestClass
from paceline_gateway.queueing.queued_request import OUTPUT_WEIGHT, QueuedRequest
from paceline_gateway.queueing.tenant_shares import TenantShares
from paceline_gateway.queueing.virtual_counters import VirtualTokenCounters
from paceline_gateway.routing.worker import SHARES

CANDIDATES = 4
DEPTH = 4
OVERTAKEN = 8
FADING = 0.99
MAX_REPORTED = 4096
"""Tenants of whom is remembered what they were served, until somebody asks."""
Cached = Callable[[QueuedRequest], int]


class FairQueue:
    """`prompt_tokens`, `cost` and `size` are sums over those who wait; `shares` counts them by tenant."""

    def __init__(self) -> None:
        self.accounts = VirtualTokenCounters()
        self.shares = TenantShares()
        self.prompt_tokens = 0
        self.cost = 0
        self.size = 0
        self._all: OrderedDict[int, QueuedRequest] = OrderedDict()
        self._own: dict[str, OrderedDict[int, QueuedRequest]] = {}
        self.costs: dict[str, int] = {}
        """By tenant, what its waiting requests are expected to be charged, were nothing cached."""
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
        """The soonest moment at which somebody here gives up."""
        while self._deadlines:
            deadline, number = self._deadlines[0]
            queued = self._all.get(number)
            if queued is not None and queued.deadline == deadline and number not in self._late:
                return deadline
            heapq.heappop(self._deadlines)
        return None

    @property
    def oldest_request(self) -> QueuedRequest | None:
        """The request that has waited for longest."""
        return next(iter(self._all.values()), None)

    @property
    def oldest(self) -> float | None:
        """When the one who waits longest joined."""
        oldest_request = self.oldest_request
        return None if oldest_request is None else oldest_request.joined

    @property
    def late(self) -> list[QueuedRequest]:
        """Those past their deadline, who still have to be told."""
        return list(self._late.values())

    @property
    def willing(self) -> int:
        """How many wait to be given out by turns."""
        return len(self._all) - len(self._late) - len(self._suspects)

    @property
    def suspect(self) -> QueuedRequest | None:
        """The first of those that a worker may have died of."""
        return next(iter(self._suspects.values()), None)

    @property
    def resumed(self) -> QueuedRequest | None:
        """The first of those whose stream has begun and must go on."""
        return next(iter(self._resumed.values()), None)

    def join(self, queued: QueuedRequest, *, front: bool = False) -> None:
        """Stand at the end of the tenant's queue, or before all."""
        self._all[queued.id] = queued
        heapq.heappush(self._deadlines, (queued.deadline, queued.id))
        if len(self._deadlines) > 2 * len(self._all) + 64:
            self._deadlines = [(t.deadline, t.id) for t in self._all.values() if t.id not in self._late]
            heapq.heapify(self._deadlines)
        if front:
            self._all.move_to_end(queued.id, last=False)
            own = self._suspects if queued.suspect else self._resumed if queued.resumed else self._again
            own[queued.id] = queued
        else:
            self._own.setdefault(queued.tenant, OrderedDict())[queued.id] = queued
            self.accounts.enter(queued.tenant, queued.weight, self._largest)
        self._count(queued, 1)
        self.shares.add(queued.tenant, queued.weight, 1)

    def leave(self, queued: QueuedRequest) -> bool:
        """Step out; False when it does not stand here."""
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
        """Give out no more what is past its deadline."""
        while (deadline := self.nearest_deadline) is not None and deadline <= now:
            _, number = heapq.heappop(self._deadlines)
            queued = self._late[number] = self._all[number]
            self._step_out(queued)

    def next(self, cached: Cached | None) -> QueuedRequest | None:
        """Whose turn it is. `cached`: how much of a prompt a worker with room has; None if nobody has room."""
        if self._resumed or self._again:
            return self.resumed or next(iter(self._again.values()))
        tenants = self.accounts.first(CANDIDATES if cached else 1, self._largest)
        if not tenants:
            return None
        turn = next(iter(self._own[tenants[0]].values()))
        if cached is None or turn.overtaken >= OVERTAKEN:
            return turn
        candidates: list[QueuedRequest] = []
        for tenant in tenants:
            waiting = list(islice(self._own[tenant].values(), DEPTH))
            candidates += waiting[:1] if waiting[0].overtaken >= OVERTAKEN else waiting
        return max(candidates, key=cached)

    def went(self, queued: QueuedRequest) -> None:
        """It was given out and is charged, once; whom it overtook is counted."""
        if len(self._all) > 1 and queued.id in self._own.get(queued.tenant, ()):
            for tenant in {queued.tenant, *self.accounts.first(1)}:
                first = next(iter(self._own[tenant].values()))
                first.overtaken += first is not queued
        if not queued.charged:
            self.accounts.charge(queued.tenant, self._first_charge(queued), queued.weight)
        self.leave(queued)

    def pass_by(self, queued: QueuedRequest) -> None:
        """It is given out as it comes, while nobody stands here."""
        credit = self._largest
        self.accounts.pass_by(queued.tenant, self._first_charge(queued), queued.weight, credit)

    def settle(self, queued: QueuedRequest, used: float) -> None:
        """It ended, and used so many tokens, output twice: the account of its tenant, if charged, is put right."""
        if queued.charged:
            tokens = used - queued.charged
            self.accounts.charge(queued.tenant, tokens, queued.weight)
            self._note_service(queued, tokens)

    def taken(self) -> dict[str, float]:
        """What each tenant was served since this was last asked, in tokens over weight."""
        fresh, self._fresh = self._fresh, {}
        return fresh

    def elsewhere(self, tenant: str, served: float) -> None:
        """Another gateway served so much, in tokens over weight."""
        self.accounts.charge(tenant, served, 1)

    def newest(self, tenant: str) -> QueuedRequest | None:
        """The one of a tenant who came last, of those who have not been served."""
        own = self._own.get(tenant)
        return next(reversed(own.values())) if own else None

    def _first_charge(self, queued: QueuedRequest) -> float:
        """Charge a request that goes for the first time."""
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
        del own[queued.id]
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
    """`promoted` counts who went before more urgent ones, by class; whoever reads it may clear it."""

    def __init__(self, queues: Mapping[RequestClass, FairQueue]) -> None:
        self._queues = queues
        self._earned = dict.fromkeys(STARVED_S, 0.0)
        self.promoted: Counter[RequestClass] = Counter()

    def due(self, now: float) -> list[RequestClass]:
        """Starving classes whose turn it is."""
        for name in self._earned:
            if self._earned[name] and not self._starving(name, now):
                self._earned[name] = 0.0
        return [name for name, earned in self._earned.items() if earned >= 1]

    def took(self, name: RequestClass) -> None:
        """A starving class took its turn."""
        self._earned[name] -= 1
        self.promoted[name] += 1

    def went(self, urgent: RequestClass, now: float) -> None:
        """One of this class went; those less urgent who starve earn by it."""
        for name in self._earned:
            if SHARES[name] < SHARES[urgent] and self._starving(name, now):
                self._earned[name] = min(self._earned[name] + SHARES[name] / SHARES[urgent], 1.0)

    def _starving(self, name: RequestClass, now: float) -> bool:
        oldest_request = self._queues[name].oldest_request
        if oldest_request is None:
            return False
        return now - oldest_request.joined >= min(
            STARVED_S[name], (oldest_request.deadline - oldest_request.joined) / 2
        )

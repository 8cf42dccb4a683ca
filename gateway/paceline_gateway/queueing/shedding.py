"""Load shedding: bounds on waiting requests in number, bytes and expected wait.

While other tenants wait too, a full queue refuses a tenant that has its share of it (429: its own requests fill the
queue). A tenant below its share displaces the newest request of the tenant that holds most. With no tenant above its
share, the service itself is full (503). The same rules hold for the bytes that wait, and for the number held while no
worker is eligible. A request whose predicted wait is far beyond its deadline is refused at once, with the excess as
`retry-after`. Missing data refuses no request: a rate observed for too short a time predicts nothing.

An overloaded service (`pressure`) refuses new offline requests; those that wait stay.

`DispatchRate` measures how fast a queue moves, and from that how long a refused client should wait.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from paceline_core.errors import Code, RequestError
from paceline_core.registry.enums import ShedReason
from paceline_gateway.queueing.fair_queue import FairQueue
from paceline_gateway.queueing.queued_request import QueuedRequest
from paceline_gateway.queueing.tenant_shares import TenantShares

MEMORY_S = 10.0
MIN_S = 1.0
SOONEST_S = 1.0
LATEST_S = 60.0
UNKNOWN_S = 5.0


class DispatchRate:
    """Departures per second with a memory of ten seconds; an exponential average over irregular events.

    After as long without a departure it restarts, and weights a young average by its age (at least a second): the
    idle time before a burst says nothing about how fast the burst is served.
    """

    def __init__(self) -> None:
        self._level = 0.0
        self._began = -math.inf
        self._at = -math.inf

    def departed(self, now: float, amount: float = 1.0) -> None:
        """One request, or `amount` of what is counted, went to a worker."""
        if now - self._at > MEMORY_S:
            self._level, self._began = 0.0, now
        self._level = self._decayed(now) + amount / MEMORY_S
        self._at = now

    def per_second(self, now: float) -> float:
        """The current rate of departures."""
        age = max(now - self._began, MIN_S)
        return self._decayed(now) / -math.expm1(-age / MEMORY_S)

    def known(self, now: float) -> bool:
        """Whether it has been observed for its whole memory, up to now."""
        return now - self._began >= MEMORY_S >= now - self._at

    def _decayed(self, now: float) -> float:
        return self._level * math.exp((self._at - now) / MEMORY_S) if self._level else 0.0

    def retry_after(self, waiting: int, now: float) -> float:
        """Seconds until `waiting` requests will have left, at this rate, between 1 and 60; 5 while nothing moves."""
        rate = self.per_second(now)
        if rate * LATEST_S < 1:
            return UNKNOWN_S
        return min(max(waiting / rate, SOONEST_S), LATEST_S)


CERTAINTY = 1.5
"""A request is refused at once if its predicted wait exceeds the time to its deadline by this factor."""


@dataclass(frozen=True, slots=True)
class ShedDecision:
    """The request to shed: the new one, or one that waits already. `error` is its answer."""

    queued: QueuedRequest
    reason: ShedReason
    error: RequestError


@dataclass(frozen=True, slots=True)
class ExceededLimit:
    """A limit that has no room for one more request. `why` is the text for the refused client."""

    shares: TenantShares
    amount: int
    limit: int
    reason: ShedReason
    code: Code
    why: str


def choose_victim(
    queued: QueuedRequest, full: ExceededLimit, queues: Iterable[FairQueue], after: float
) -> ShedDecision:
    """The request to shed. `queues`: where one can be displaced, least urgent first; `after`: the `retry-after`."""
    shares = full.shares
    if shares.exceeds(queued.tenant, queued.weight, full.amount, full.limit):
        return ShedDecision(queued, ShedReason.TENANT_SHARE, _too_many(after))
    holder = shares.displaceable(queued.tenant, queued.weight, full.amount, full.limit)
    if holder is not None:
        for queue in queues:
            newest = queue.newest(holder)
            if newest is not None:
                return ShedDecision(newest, ShedReason.DISPLACED, _too_many(after))
    return ShedDecision(queued, full.reason, RequestError(full.code, full.why, retry_after=after))


def misses_deadline(queued: QueuedRequest, queue: FairQueue, rate: DispatchRate, now: float) -> ShedDecision | None:
    """The refusal of a request that would very probably miss its deadline."""
    if not rate.known(now) or (per_second := rate.per_second(now)) <= 0:
        return None
    wait, patience = backlog(queued, queue) / per_second, queued.deadline - now
    if wait <= CERTAINTY * patience:
        return None
    why = f"The request would wait {wait:.0f} s and may wait {patience:.0f} s; retry later."
    error = RequestError(Code.QUEUE_FULL, why, retry_after=max(wait - patience, 1.0))
    return ShedDecision(queued, ShedReason.DEADLINE_UNREACHABLE, error)


def backlog(queued: QueuedRequest, queue: FairQueue) -> float:
    """Tokens to serve until this request has gone: all waiting ones, or fewer if its tenant has less than its share."""
    own = queue.costs.get(queued.tenant, 0) + queued.cost
    weights = queue.accounts.weight + (0 if queue.shares.of(queued.tenant) else queued.weight)
    return min(queue.cost + queued.cost, own * weights / queued.weight)


def offline_refusal() -> RequestError:
    """The error of a new offline request for an overloaded service; such a request has time."""
    why = "The service cannot keep its promise to interactive requests, so it takes no offline ones now; retry later."
    return RequestError(Code.NO_CAPACITY, why, retry_after=LATEST_S)


def _too_many(after: float) -> RequestError:
    message = "The line is full, and your requests take more than their share of it; retry later."
    return RequestError(Code.RATE_LIMIT_EXCEEDED, message, retry_after=after)

"""Who may wait, and who must go so that another may: bounds in number, bytes and expected wait.

A line that is full refuses those whose tenant has its share of it while others wait too (429: it is the tenant's own
doing), and lets those below their share displace the newest of whoever holds most. With nobody above a share the
service itself is full (503). The same holds for the bytes that wait, and for the number held while no worker is there.
Who would in all likelihood wait beyond the deadline is refused at once, and told how long the line is too long.
Missing data refuses nobody: a rate that has not been watched for long enough predicts nothing.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from paceline_core.errors import Code, RequestError
from paceline_core.registry.enums import ShedReason
from paceline_gateway.queues.drain import DispatchRate
from paceline_gateway.queues.line import FairQueue
from paceline_gateway.queues.shares import TenantShares
from paceline_gateway.queues.ticket import QueuedRequest

CERTAINTY = 1.5
"""Requests whose predicted wait is so many times what they may wait are refused at once."""


@dataclass(frozen=True, slots=True)
class ShedDecision:
    """Somebody must go: the one who came, or one who waits already. `error` is what it hears."""

    ticket: QueuedRequest
    reason: ShedReason
    error: RequestError


@dataclass(frozen=True, slots=True)
class ExceededLimit:
    """Something that has no room for one more. `why` says so to whoever is refused."""

    shares: TenantShares
    amount: int
    limit: int
    reason: ShedReason
    code: Code
    why: str


def choose_victim(ticket: QueuedRequest, full: ExceededLimit, lines: Iterable[FairQueue], after: float) -> ShedDecision:
    """Who goes. `lines`: where one can be displaced, least urgent first; `after`: when to come again."""
    shares = full.shares
    if shares.exceeds(ticket.tenant, ticket.weight, full.amount, full.limit):
        return ShedDecision(ticket, ShedReason.TENANT, _too_many(after))
    holder = shares.displaceable(ticket.tenant, ticket.weight, full.amount, full.limit)
    if holder is not None:
        for line in lines:
            newest = line.newest(holder)
            if newest is not None:
                return ShedDecision(newest, ShedReason.DISPLACED, _too_many(after))
    return ShedDecision(ticket, full.reason, RequestError(full.code, full.why, retry_after=after))


def misses_deadline(ticket: QueuedRequest, line: FairQueue, rate: DispatchRate, now: float) -> ShedDecision | None:
    """Whether it would in all likelihood wait too long."""
    if not rate.known(now) or (per_second := rate.per_second(now)) <= 0:
        return None
    wait, patience = backlog(ticket, line) / per_second, ticket.deadline - now
    if wait <= CERTAINTY * patience:
        return None
    why = f"The request would wait {wait:.0f} s and may wait {patience:.0f} s; retry later."
    error = RequestError(Code.QUEUE_FULL, why, retry_after=max(wait - patience, 1.0))
    return ShedDecision(ticket, ShedReason.TOO_LATE, error)


def backlog(ticket: QueuedRequest, line: FairQueue) -> float:
    """Tokens to be served until it has gone: all that wait, or less if its tenant has less than its share of them."""
    own = line.cost_of(ticket.tenant) + ticket.cost
    weights = line.accounts.weight + (0 if line.shares.of(ticket.tenant) else ticket.weight)
    return min(line.cost + ticket.cost, own * weights / ticket.weight)


def _too_many(after: float) -> RequestError:
    message = "The line is full, and your requests take more than their share of it; retry later."
    return RequestError(Code.RATE_LIMIT_EXCEEDED, message, retry_after=after)

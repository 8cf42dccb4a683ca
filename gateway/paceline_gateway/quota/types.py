"""Quota's types: usage, limits, the exchange between a gateway and the counters, and charges for failed requests.

Amounts are vectors of four: requests, input tokens, output tokens, and slots (requests at once). The first three refill
over a minute; a slot comes back when its request ends.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from paceline_core.errors import Code, RequestError
from paceline_core.objects.resolved import ResolvedTenant
from paceline_core.registry import Outcome
from paceline_gateway.request.types import judge_status

Vector = tuple[float, ...]
RATES: Final = 3
SLOTS: Final = 3
SIZE: Final = 4
NOTHING: Final[Vector] = (0.0,) * SIZE
NEVER: Final = float("inf")
UNLIMITED: Final = float("inf")
CLOSE: Final = 1e-6
"""Amounts that differ by less count as equal."""


class QuotaUsage(NamedTuple):
    """What a request needs, or has used, as a vector. `slots` is 1 for each request."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    slots: int = 1


class Reservation(NamedTuple):
    """What is reserved for one request. `kinds`: the indices of the amounts that were limited, and so charged.

    `since` is when it was made; `fields` are the rate-limit header lines for the client.
    """

    tenant: str
    use: QuotaUsage
    kinds: tuple[int, ...]
    since: float
    fields: bytes = b""


Then = Callable[[Reservation | RequestError], None]
"""Called with the reservation, or with the error that refuses it."""


@dataclass(slots=True, eq=False)
class PendingReservation:
    """A request that waits for the store. `asked` counts the exchanges made for it."""

    use: QuotaUsage
    then: Then
    asked: int = 0
    gone: bool = False


@dataclass(frozen=True, slots=True)
class LeaseRequest:
    """One gateway's lease request for one tenant. It is applied once for each `seq`, however often it is sent.

    back: given back; negative: used already and owed.
    held: kept from earlier grants; for slots, all that are in use or spare.
    least: granted in full, or nothing is granted; want: granted as far as available.
    belief: the levels as far as the gateway knows, for a store that has lost the tenant (its `epoch` differs).
    """

    tenant: str
    holder: str
    seq: int
    limits: Vector
    back: Vector
    held: Vector
    least: Vector
    want: Vector
    epoch: int = 0
    belief: Vector | None = None


@dataclass(frozen=True, slots=True)
class LeaseGrant:
    """The answer: what was granted, and the levels that remain in the store."""

    given: Vector
    levels: Vector
    epoch: int


def limits_of(tenant: ResolvedTenant, share: int = 1) -> Vector:
    """A tenant's limits, or one of `share` equal parts of them; at least one slot."""
    slots = UNLIMITED if tenant.concurrency is None else max(tenant.concurrency // share, 1)
    rates = (tenant.requests_per_minute, tenant.input_tokens_per_minute, tenant.output_tokens_per_minute)
    return (*(UNLIMITED if rate is None else rate / share for rate in rates), float(slots))


def used_by_refused(status: int) -> QuotaUsage:
    """The charge for a request that a worker refuses with this status, if that refusal is the final answer."""
    return QuotaUsage(requests=1) if judge_status(status) is Outcome.CLIENT_ERROR else QuotaUsage()


def used_by_failed(code: Code, reserved: QuotaUsage) -> QuotaUsage:
    """The charge for a request that fails with this error before its first byte: its prompt if workers died of it."""
    return QuotaUsage(1, reserved.input_tokens) if code is Code.REQUEST_ISOLATED else QuotaUsage()

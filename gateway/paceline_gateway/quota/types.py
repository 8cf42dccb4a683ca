"""Quota's nouns: what is used, what limits it, and the one exchange between a gateway and whoever keeps the counters.

Amounts are vectors of four: requests, input tokens, output tokens, and slots (requests at once). The first three refill
over a minute; a slot comes back when its request ends.

What a request that has ended is charged for.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

from paceline_core.errors import Code, RequestError
from paceline_core.objects.resolved import ResolvedTenant
from paceline_core.registry import Outcome
from paceline_gateway.request.types import RequestRecord, judge_status

Vector = tuple[float, ...]
RATES: Final = 3
SLOTS: Final = 3
SIZE: Final = 4
NOTHING: Final[Vector] = (0.0,) * SIZE
NEVER: Final = float("inf")
UNLIMITED: Final = float("inf")
CLOSE: Final = 1e-6
"""Amounts that differ by less are the same."""


class QuotaUsage(NamedTuple):
    """What a request needs, or has used, as a vector. `slots`: the one that each takes."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    slots: int = 1


class Reservation(NamedTuple):
    """What was set aside for one request. `kinds`: the indices of those amounts that were limited, and so charged.

    `since` is when; `fields` are the header lines that tell the client where it stands.
    """

    tenant: str
    use: QuotaUsage
    kinds: tuple[int, ...]
    since: float
    fields: bytes = b""


Then = Callable[[Reservation | RequestError], None]
"""Who hears of a reservation, or why there is none."""


@dataclass(slots=True, eq=False)
class PendingReservation:
    """A request that waits for the store. `asked` counts the exchanges made for it."""

    use: QuotaUsage
    then: Then
    asked: int = 0
    gone: bool = False


@dataclass(frozen=True, slots=True)
class LeaseRequest:
    """One gateway's exchange for one tenant. Applied once for each `seq`, however often it is sent.

    back: given back; negative: used already and owed.
    held: kept of earlier grants; of slots all that are in use or spare.
    least: granted whole or nothing is; want: granted as far as there is.
    belief: the levels as far as the gateway knows, for a store that has forgotten the tenant (its `epoch` differs).
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
    """The answer: what was granted, and what is left there for anybody."""

    given: Vector
    levels: Vector
    epoch: int


def limits_of(tenant: ResolvedTenant, share: int = 1) -> Vector:
    """A tenant's limits, or one of `share` equal parts of them; of slots never less than one."""
    slots = UNLIMITED if tenant.concurrency is None else max(tenant.concurrency // share, 1)
    rates = (tenant.requests_per_minute, tenant.input_tokens_per_minute, tenant.output_tokens_per_minute)
    return (*(UNLIMITED if rate is None else rate / share for rate in rates), float(slots))


_OK, _CLIENT_ERROR, _CANCELLED = Outcome.OK, Outcome.CLIENT_ERROR, Outcome.CANCELLED
_NOT_SERVED = frozenset({Outcome.SHED, Outcome.UPSTREAM_ERROR, Outcome.TIMEOUT})


def used_by_refused(status: int) -> QuotaUsage:
    """What a request will be charged for that a worker refuses with this status, if its refusal stands."""
    return QuotaUsage(requests=1) if judge_status(status) is Outcome.CLIENT_ERROR else QuotaUsage()


def made_since(seconds: float, step_s: float, choices: int) -> int | None:
    """Output tokens that a worker has made for a request in this time, a step of its own for each; None: not known."""
    return int(max(seconds, 0.0) / step_s) * choices if step_s > 0 else None


def used_by_failed(code: Code, reserved: QuotaUsage) -> QuotaUsage:
    """The charge for a request that ends with this error before its first byte: its prompt if workers died of it."""
    return QuotaUsage(1, reserved.input_tokens) if code is Code.REQUEST_ISOLATED else QuotaUsage()


def charged_usage(record: RequestRecord, reserved: QuotaUsage, made: int = 0) -> QuotaUsage:
    """What a request has used: nothing if it never reached a worker or no worker could answer it.

    Where the prompt's tokens were not told, the estimate stands; so does that of a whole answer whose tokens nobody
    has counted. It tells them at its end alone: of one that its client gave up, `made` is an estimate. One that workers
    died of pays its prompt.
    """
    if record.code is Code.REQUEST_ISOLATED:
        return QuotaUsage(1, record.meter.prompt or reserved.input_tokens, record.meter.output)
    if record.sent is None or (record.outcome in _NOT_SERVED and not record.meter.output):
        return QuotaUsage()
    if record.outcome is _CLIENT_ERROR and not record.meter.output:
        return QuotaUsage(requests=1)
    meter, output = record.meter, record.meter.output
    if not (output or meter.counted or (record.terms is not None and record.terms.stream)):
        output = {_CANCELLED: made, _OK: reserved.output_tokens}.get(record.outcome, 0)
    return QuotaUsage(1, meter.prompt or reserved.input_tokens, output)

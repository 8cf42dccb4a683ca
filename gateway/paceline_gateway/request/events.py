"""Events of a request, and the actions that the machine returns to its driver."""

from dataclasses import dataclass
from typing import NamedTuple

from paceline_core.errors import Code, RequestError
from paceline_core.registry.enums import AbortReason, ResumeReason
from paceline_gateway.request.attempts import RetryBudget
from paceline_gateway.request.group_testing import SuspectGroup
from paceline_gateway.request.types import RequestRecord, RequestTerms


class Authenticated(NamedTuple):
    """The key belongs to this tenant."""

    tenant: str


class Admitted(NamedTuple):
    """The request is well-formed and its model is known. `budget` is its service's."""

    terms: RequestTerms
    budget: RetryBudget


@dataclass(frozen=True, slots=True)
class Queued:
    """The queue has room for it."""


@dataclass(frozen=True, slots=True)
class Diverted:
    """Another destination of its route takes it, under its own terms. Occurs only while it waits for a worker before
    the first byte."""

    terms: RequestTerms
    budget: RetryBudget


@dataclass(frozen=True, slots=True)
class Refused:
    """The request must end with this error: not admitted, its service is gone, or the gateway stops."""

    error: RequestError


class Assigned(NamedTuple):
    """The queue dispatched it to a worker."""

    worker: str


class Answered(NamedTuple):
    """The worker's status arrived. 503: it takes no new requests, or no second suspect (`busy`). `part`: see Lost."""

    status: int
    part: SuspectGroup | None = None
    busy: bool = False


@dataclass(frozen=True, slots=True)
class Began:
    """The first content of a stream has arrived and is about to be forwarded."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The worker's answer is complete. `code`: of its error, if it is one."""

    code: Code | None = None


@dataclass(frozen=True, slots=True)
class Lost:
    """The worker's answer broke off. `harmless`: not held against the request; `suspect`: prefer other workers.

    For a stream that has begun, `reason` says why, and `abort` what keeps it from resuming elsewhere, if anything.
    `part`: the request's part in the worker's death, if it died.
    """

    harmless: bool = False
    suspect: bool = True
    reason: ResumeReason = ResumeReason.CONNECTION
    abort: AbortReason | None = AbortReason.UNSUPPORTED_RUNTIME
    part: SuspectGroup | None = None


@dataclass(frozen=True, slots=True)
class AttemptFailed:
    """A stream contains an error event of the worker. `code`: its code, if known."""

    code: Code | None = None


@dataclass(frozen=True, slots=True)
class ClientGone:
    """The client is gone. `stalled`: the gateway cut it, because it read nothing for too long."""

    stalled: bool = False


@dataclass(frozen=True, slots=True)
class Expired:
    """`RequestMachine.deadline` has passed. `held`: its service has no worker. `abort` as in `Lost`, for a silent
    stream."""

    held: bool = False
    abort: AbortReason | None = AbortReason.UNSUPPORTED_RUNTIME


Event = (
    Authenticated | Admitted | Queued | Diverted | Refused | Assigned | Answered | Began | Finished | Lost
    | AttemptFailed | ClientGone | Expired
)  # fmt: skip


class Enqueue(NamedTuple):
    """Wait for a worker; `again`: at the head of the queue, and at another worker if there is one.

    `resume`: with a stream that has begun.
    """

    again: bool = False
    resume: bool = False


@dataclass(frozen=True, slots=True)
class Dequeue:
    """Leave the queue."""


@dataclass(frozen=True, slots=True)
class TryFallback:
    """A worker failed it, and its route has further destinations. One that can take it is used if no other worker is
    left here, or if its next dispatch is its `last`. The answer is Diverted or none: the request is in the queue."""

    last: bool


@dataclass(frozen=True, slots=True)
class SwitchDestination:
    """Move the request to the destination that takes it."""


class Send(NamedTuple):
    """Dispatch to this worker."""

    worker: str


@dataclass(frozen=True, slots=True)
class Resumed:
    """The stream continues at another worker, after a gap in seconds. Count it."""

    reason: ResumeReason
    gap: float


@dataclass(frozen=True, slots=True)
class AbortUpstream:
    """Close the exchange with the worker, so that it stops working."""


class ReleaseSlot(NamedTuple):
    """Free the worker's slot. `suspect`: this worker just failed; prefer others for a while."""

    worker: str
    suspect: bool = False


@dataclass(frozen=True, slots=True)
class Accuse:
    """Its worker died of it or of another request (`part`): this affects the choice of the next worker."""

    part: SuspectGroup


@dataclass(frozen=True, slots=True)
class SendResponse:
    """Forward the collected answer, whatever its status."""


@dataclass(frozen=True, slots=True)
class Close:
    """End the stream as the worker ended it."""


@dataclass(frozen=True, slots=True)
class Fail:
    """Answer with an error: a complete answer before the first byte, an SSE event after it."""

    error: RequestError


class Settle(NamedTuple):
    """The request is over; count it."""

    record: RequestRecord


Action = (
    Enqueue | Dequeue | TryFallback | SwitchDestination | Send | Resumed | AbortUpstream | ReleaseSlot | Accuse
    | SendResponse | Close | Fail | Settle
)  # fmt: skip

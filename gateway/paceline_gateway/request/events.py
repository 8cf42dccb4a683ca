"""Events of a request, and the actions that the machine asks its shell to take."""

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
    """There is room for it to wait."""


@dataclass(frozen=True, slots=True)
class Diverted:
    """Another destination of its route takes it, under its own terms. Heard only while it waits for its first worker
    or its next one before the first byte."""

    terms: RequestTerms
    budget: RetryBudget


@dataclass(frozen=True, slots=True)
class Refused:
    """The request must end with this error: not admitted, its service is gone, or the gateway stops."""

    error: RequestError


class Assigned(NamedTuple):
    """The queue gave it to a worker."""

    worker: str


class Answered(NamedTuple):
    """The worker's status has come. 503: it takes no new work, or, `busy`, no second suspect. `part` as in `Lost`."""

    status: int
    part: SuspectGroup | None = None
    busy: bool = False


@dataclass(frozen=True, slots=True)
class Began:
    """The first content of a stream is in hand and about to be passed on."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The worker's answer is complete. `code`: of its error, where it is one."""

    code: Code | None = None


@dataclass(frozen=True, slots=True)
class Lost:
    """The worker's answer broke off. `harmless`: that is not held against it; `suspect`: better ask others.

    `reason` and `abort` are about a stream that has begun: why, and what keeps it from going on elsewhere, if anything.
    `part`: the worker has died, and the request's part in that.
    """

    harmless: bool = False
    suspect: bool = True
    reason: ResumeReason = ResumeReason.CONNECTION
    abort: AbortReason | None = AbortReason.UNSUPPORTED_RUNTIME
    part: SuspectGroup | None = None


@dataclass(frozen=True, slots=True)
class AttemptFailed:
    """A stream carries an error event of the worker's own. `code`: its code, where that is known."""

    code: Code | None = None


@dataclass(frozen=True, slots=True)
class ClientGone:
    """The client does not wait any more. `stalled`: its client read nothing for too long and was cut."""

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
    """Wait for a worker; `again` at the head of the queue, and on another worker if there is one.

    `resume`: with a stream that has begun.
    """

    again: bool = False
    resume: bool = False


@dataclass(frozen=True, slots=True)
class Dequeue:
    """Leave the queue."""


@dataclass(frozen=True, slots=True)
class TryFallback:
    """A worker failed it, and its route has further destinations: one that can take it is asked if no other worker is
    left here, or if its next dispatch is its `last`. Answered by Diverted or not at all: it stands in the queue."""

    last: bool


@dataclass(frozen=True, slots=True)
class SwitchDestination:
    """Belong to the destination that takes it, from here on."""


class Send(NamedTuple):
    """Dispatch to this worker."""

    worker: str


@dataclass(frozen=True, slots=True)
class Resumed:
    """The stream goes on at another worker, after a gap in seconds. Count it."""

    reason: ResumeReason
    gap: float


@dataclass(frozen=True, slots=True)
class AbortUpstream:
    """Close the exchange with the worker, so that it stops working."""


class ReleaseSlot(NamedTuple):
    """Give the worker's slot back. `suspect`: this worker just failed; ask others first for a moment."""

    worker: str
    suspect: bool = False


@dataclass(frozen=True, slots=True)
class Accuse:
    """Its worker died of it or of another one (`part`): how its next one is chosen depends on that."""

    part: SuspectGroup


@dataclass(frozen=True, slots=True)
class SendResponse:
    """Pass the collected answer on, whatever its status."""


@dataclass(frozen=True, slots=True)
class Close:
    """End the stream as the worker ended it."""


@dataclass(frozen=True, slots=True)
class Fail:
    """Answer with an error: whole before the first byte, as an SSE event after it."""

    error: RequestError


class Settle(NamedTuple):
    """The request is over; count it."""

    record: RequestRecord


Action = (
    Enqueue | Dequeue | TryFallback | SwitchDestination | Send | Resumed | AbortUpstream | ReleaseSlot | Accuse
    | SendResponse | Close | Fail | Settle
)  # fmt: skip

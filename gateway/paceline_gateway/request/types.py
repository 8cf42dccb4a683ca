"""Types of a request: its counts and terms, its states, its record when it has ended, and the errors that end it."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from paceline_core.errors import ERRORS, Code, RequestError
from paceline_core.registry.enums import AbortReason, DegradeKind, Outcome, RequestClass


@dataclass(slots=True)
class TokenUsage:
    """Token counts that the answer reveals; filled in while it passes, final when it ends.

    `counted`: the worker reported the number of output tokens.
    """

    prompt: int = 0
    cached: int = 0
    output: int = 0
    counted: bool = False
    worker: "WorkerPhases | None" = None


class WorkerPhases(NamedTuple):
    """Seconds that the worker reports for its part."""

    tokenize: float = 0.0
    queue: float = 0.0
    batch_wait: float = 0.0
    prefill: float = 0.0
    decode: float = 0.0
    post: float = 0.0

    @property
    def total(self) -> float:
        return self.tokenize + self.queue + self.batch_wait + self.prefill + self.decode + self.post


_NO_PHASES = WorkerPhases()


class RequestTerms(NamedTuple):
    """The terms on which a request was admitted. Times in seconds, `hold_s` for waiting in the gateway.

    `promised`: its class's SLOs apply to it. `fallbacks`: its route has further destinations. `degraded`: how its
    answer is less than asked for.
    """

    service: str
    request_class: RequestClass
    stream: bool
    prompt_tokens: int
    hold_s: float
    attempts: int
    promised: bool = True
    fallbacks: bool = False
    degraded: tuple[DegradeKind, ...] = ()


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long a dispatched request may be silent: to a stream's first token, inside it, until a complete answer."""

    first_token_s: float
    stream_idle_timeout_s: float
    answer_s: float
    resume_s: float = 60.0
    """From the loss of a stream's worker to its next token from another one."""


@dataclass(slots=True)
class RequestRecord:
    """A request that has ended. Times are monotonic seconds; None for events that did not occur.

    `received` is the last byte of the body, `first` the first content handed to the client, `ended` the last byte.
    `sent` is the dispatch that led to the answer, `queued` the moment of admission. `resumed` counts how often a stream
    continued at another worker: then `sent` is the last dispatch, `again` the first content of it, and `earlier` the
    time that other workers spent on what the client has. `abort`: why it could not resume. `diverted`: how often it
    moved to another destination of its route; `terms` are those of the last one.
    """

    outcome: Outcome
    status: int
    code: Code | None
    tenant: str
    terms: RequestTerms | None
    received: float
    queued: float | None
    sent: float | None
    first: float | None
    ended: float
    attempts: int
    worker: str
    meter: TokenUsage
    resumed: int = 0
    again: float | None = None
    earlier: WorkerPhases = _NO_PHASES
    abort: AbortReason | None = None
    diverted: int = 0
    e2e: float = field(init=False)
    """Body read to last byte handed over, seconds."""
    waited: float | None = field(init=False)
    """Seconds in the gateway's queue; None if it never reached a worker."""
    ttft: float | None = field(init=False, default=None)
    """Body read to first content; None for answers that did not stream or never began."""
    tpot: float | None = field(init=False, default=None)
    """(last - first) / (n - 1) over n >= 2 output tokens of a stream."""

    def __post_init__(self) -> None:
        self.e2e = self.ended - self.received
        self.waited = None if self.sent is None or self.queued is None else self.sent - self.queued - self.earlier.total
        if self.first is not None and self.terms is not None and self.terms.stream:
            self.ttft = self.first - self.received
            if self.meter.output >= 2:
                self.tpot = (self.ended - self.first) / (self.meter.output - 1)


class RequestState(StrEnum):
    """The states of `RequestMachine`."""

    RECEIVED = "received"
    AUTHENTICATED = "authenticated"
    ADMITTED = "admitted"
    QUEUED = "queued"
    DISPATCHED = "dispatched"
    STREAMING = "streaming"
    RESUMING = "resuming"
    DONE = "done"


RECEIVED, AUTHENTICATED, ADMITTED, QUEUED, DISPATCHED, STREAMING, RESUMING, DONE = RequestState
"""Module names for the members: looking one up in its class costs more than most steps of the request machine."""
BEFORE_DISPATCH = frozenset({ADMITTED, QUEUED})
WAITING = frozenset({QUEUED, RESUMING})
HELD = WAITING | BEFORE_DISPATCH
"""In the queue, or waiting to join it."""
AT_WORKER = frozenset({DISPATCHED, STREAMING})


def judge_status(status: int) -> Outcome:
    """The outcome of an answer that the worker completed."""
    if status < 400:
        return Outcome.OK
    if status == 503:
        return Outcome.SHED
    if status == 504:
        return Outcome.TIMEOUT
    return Outcome.UPSTREAM_ERROR if status >= 500 else Outcome.CLIENT_ERROR


def is_clients(code: Code | None) -> bool:
    """Whether an error is the client's own, and no failure of a worker."""
    return code is not None and ERRORS[code].outcome is Outcome.CLIENT_ERROR


def isolated() -> RequestError:
    """The error of a request that two workers died of."""
    why = (
        "Two workers died while they worked on this request, so no other one gets it. "
        "Do not send it again as it is; tell whoever runs the service its request id."
    )
    return RequestError(Code.REQUEST_ISOLATED, why)


def lost(*, begun: bool) -> RequestError:
    """The error of a request that lost too many workers."""
    if begun:
        why = "The worker was lost while it answered; what came so far is incomplete."
        return RequestError(Code.STREAM_LOST, why)
    return RequestError(Code.UPSTREAM_ERROR, "The worker was lost before it answered; retry.")


def late(state: RequestState, *, begun: bool, held: bool) -> RequestError:
    """The error when the limit of its state has passed; `held`: its service has no worker."""
    if state is ADMITTED:
        return RequestError(Code.HELD_TIMEOUT, "The tenant's limits could not be looked up in time; retry later.")
    if begun and state is not STREAMING:
        why = "The worker was lost while it answered, and no other one went on in time; what came is incomplete."
        return RequestError(Code.STREAM_LOST, why)
    if state is QUEUED:
        cause = "no worker of the model became ready" if held else "no worker of the model had room"
        return RequestError(Code.HELD_TIMEOUT, f"The request waited its whole limit, but {cause}; retry later.")
    return RequestError(Code.UPSTREAM_TIMEOUT, "The worker took too long to answer; retry.")

"""Where a request can be, and what a worker's own answer makes of it."""

from enum import StrEnum

from paceline_core.errors import ERRORS, Code
from paceline_core.registry.enums import Outcome


class RequestState(StrEnum):
    """Where a request is."""

    RECEIVED = "received"
    AUTHENTICATED = "authenticated"
    ADMITTED = "admitted"
    QUEUED = "queued"
    DISPATCHED = "dispatched"
    STREAMING = "streaming"
    RESUMING = "resuming"
    DONE = "done"


RECEIVED, AUTHENTICATED, ADMITTED, QUEUED, DISPATCHED, STREAMING, RESUMING, DONE = RequestState
"""By their own names: to look a member up in its class costs more than most of what a request's machine does."""
BEFORE_DISPATCH = frozenset({ADMITTED, QUEUED})
WAITING = frozenset({QUEUED, RESUMING})
HELD = WAITING | BEFORE_DISPATCH
"""In the queue, or waiting to be let into it."""
AT_WORKER = frozenset({DISPATCHED, STREAMING})


def judge_status(status: int) -> Outcome:
    """The outcome of an answer that the worker gave whole."""
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

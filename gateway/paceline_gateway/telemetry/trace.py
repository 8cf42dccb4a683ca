"""One request's trace while it is under way: ids and timestamps, of which spans are made when it has ended. Pure.

W3C Trace Context: who asks may say in `traceparent` which trace the request is part of and whether it is sampled; a
request without one is sampled by its service's ratio. Each attempt is a span of its own, and what the worker does is
part of it, so a stream that went on at another worker shows both. A gateway that does not sample a request says so to
the worker, which would else draw once more.

Whether this gateway traces. Off, nothing of OpenTelemetry is imported and a request does nothing for it.
"""

import random
import re
from dataclasses import dataclass
from typing import Protocol

from paceline_gateway.request.types import RequestRecord

_SAMPLED = 1
_FORM = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[!-~]*)?")
"""Later versions may add to it."""


@dataclass(frozen=True, slots=True)
class Parent:
    """What a caller says of the trace that a request is part of."""

    trace_id: int
    span_id: int
    sampled: bool

    def line(self) -> bytes:
        """The header line that passes it on."""
        return b"traceparent: 00-%032x-%016x-%02x\r\n" % (self.trace_id, self.span_id, self.sampled)


def read(traceparent: bytes) -> Parent | None:
    """Take a `traceparent` apart; None for none, and for one that is not valid: it counts as none."""
    match = _FORM.fullmatch(traceparent)
    if match is None:
        return None
    version, trace, span, flags, more = match.groups()
    trace_id, span_id = int(trace, 16), int(span, 16)
    if version == b"ff" or (version == b"00" and more) or not trace_id or not span_id:
        return None
    return Parent(trace_id, span_id, bool(int(flags, 16) & _SAMPLED))


@dataclass(slots=True)
class Attempt:
    """One worker's turn. `resumed`: it goes on with a stream that another one began."""

    span_id: int
    worker: str
    start: float
    resumed: bool
    end: float | None = None


class Trace:
    """A sampled request. Times are monotonic seconds; `waits` are its turns in the queue, from and to.

    The last of `attempts` is the one that answered, or was to.
    """

    __slots__ = ("attempts", "parent_id", "span_id", "trace_id", "waits")

    def __init__(self, parent: Parent | None) -> None:
        self.trace_id = parent.trace_id if parent else random.getrandbits(128) or 1
        self.parent_id = parent.span_id if parent else None
        self.span_id = new_span_id()
        self.attempts: list[Attempt] = []
        self.waits: list[tuple[float, float | None]] = []

    def waiting(self, now: float) -> None:
        """It stands in the queue, of another service if it stood in one before."""
        if self.waits and self.waits[-1][1] is None:
            self.waits[-1] = (self.waits[-1][0], now)
        self.waits.append((now, None))

    def sent(self, worker: str, now: float, *, resumed: bool) -> bytes:
        """It goes to a worker: the header line under which that worker's spans are part of this attempt."""
        if self.waits:
            self.waits[-1] = (self.waits[-1][0], now)
        attempt = Attempt(new_span_id(), worker, now, resumed)
        self.attempts.append(attempt)
        return Parent(self.trace_id, attempt.span_id, sampled=True).line()

    def freed(self, now: float) -> None:
        """That worker's turn is over."""
        if self.attempts:
            self.attempts[-1].end = now


def new_span_id() -> int:
    """Any but zero."""
    return random.getrandbits(64) or 1


@dataclass(frozen=True, slots=True)
class FinishedRequest:
    """A sampled request that is over. `model` is the name that its service is asked for by."""

    trace: Trace
    record: RequestRecord
    request_id: str
    path: str
    model: str


class RequestTracing(Protocol):
    """Where traces begin and end."""

    @property
    def dropped(self) -> int:
        """Spans that were lost so far."""
        ...

    def begin(self, traceparent: bytes, ratio: float) -> tuple[Trace | None, bytes]: ...

    def record(self, ended: FinishedRequest) -> None:
        """Queue the spans of a request; never waits, never raises."""
        ...

    def close(self) -> None:
        """Send what is queued, for a moment; blocks."""
        ...


class NoTracing:
    """Nothing is traced here; what a caller says is passed on."""

    dropped = 0

    def begin(self, traceparent: bytes, _ratio: float) -> tuple[None, bytes]:
        parent = read(traceparent) if traceparent else None
        return None, b"" if parent is None else parent.line()

    def record(self, ended: FinishedRequest) -> None:
        """Nothing is begun here."""

    def close(self) -> None:
        """There is nothing to send."""


def begin(traceparent: bytes, ratio: float, draw: float) -> tuple[Trace | None, bytes]:
    parent = read(traceparent) if traceparent else None
    if parent is None and not ratio:
        return None, b""
    if parent.sampled if parent else draw < ratio:
        return Trace(parent), b""
    return None, (parent or Parent(random.getrandbits(128) or 1, new_span_id(), sampled=False)).line()

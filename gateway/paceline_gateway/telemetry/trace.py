"""One request's trace while it is under way: ids and timestamps, from which spans are made at its end. Pure.

W3C Trace Context: a client may say in `traceparent` which trace the request is part of and whether it is sampled; a
request without one is sampled at its service's ratio. Each attempt is a span of its own, and the worker's spans are
part of it, so a stream that moved to another worker shows both. A gateway that does not sample a request tells the
worker so, which would otherwise draw again.

With tracing off, nothing of OpenTelemetry is imported and requests do no work for it.
"""

import random
import re
from dataclasses import dataclass
from typing import Protocol

from paceline_gateway.request.types import RequestRecord

_SAMPLED = 1
_FORM = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[!-~]*)?")
"""Later versions may add fields."""


@dataclass(frozen=True, slots=True)
class Parent:
    """The trace of which a request is part, as its client sent it."""

    trace_id: int
    span_id: int
    sampled: bool

    def line(self) -> bytes:
        """The header line that passes it on."""
        return b"traceparent: 00-%032x-%016x-%02x\r\n" % (self.trace_id, self.span_id, self.sampled)


def read(traceparent: bytes) -> Parent | None:
    """Parse a `traceparent`; None if there is none or it is invalid."""
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
    """One attempt at a worker. `resumed`: it continues a stream that another worker began."""

    span_id: int
    worker: str
    start: float
    resumed: bool
    end: float | None = None


class Trace:
    """A sampled request. Times are monotonic seconds; `waits` are its waits in the queue, each with start and end.

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
        """It waits in a queue, perhaps of another service than before."""
        if self.waits and self.waits[-1][1] is None:
            self.waits[-1] = (self.waits[-1][0], now)
        self.waits.append((now, None))

    def sent(self, worker: str, now: float, *, resumed: bool) -> bytes:
        """It goes to a worker; returns the header line that makes that worker's spans part of this attempt."""
        if self.waits:
            self.waits[-1] = (self.waits[-1][0], now)
        attempt = Attempt(new_span_id(), worker, now, resumed)
        self.attempts.append(attempt)
        return Parent(self.trace_id, attempt.span_id, sampled=True).line()

    def freed(self, now: float) -> None:
        """The attempt at that worker is over."""
        if self.attempts:
            self.attempts[-1].end = now


def new_span_id() -> int:
    """A random id other than zero."""
    return random.getrandbits(64) or 1


@dataclass(frozen=True, slots=True)
class FinishedRequest:
    """A sampled request that has ended. `model` is the name that its client used."""

    trace: Trace
    record: RequestRecord
    request_id: str
    path: str
    model: str


class RequestTracing(Protocol):
    """Begins traces and takes their spans."""

    @property
    def dropped(self) -> int:
        """The number of lost spans so far."""
        ...

    def begin(self, traceparent: bytes, ratio: float) -> tuple[Trace | None, bytes]: ...

    def record(self, ended: FinishedRequest) -> None:
        """Queue the spans of a request; never waits, never raises."""
        ...

    def close(self) -> None:
        """Send what is queued, within a short time; blocks."""
        ...


class NoTracing:
    """Tracing is off; a client's `traceparent` is passed on."""

    dropped = 0

    def begin(self, traceparent: bytes, _ratio: float) -> tuple[None, bytes]:
        parent = read(traceparent) if traceparent else None
        return None, b"" if parent is None else parent.line()

    def record(self, ended: FinishedRequest) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do."""


def begin(traceparent: bytes, ratio: float, draw: float) -> tuple[Trace | None, bytes]:
    parent = read(traceparent) if traceparent else None
    if parent is None and not ratio:
        return None, b""
    if parent.sampled if parent else draw < ratio:
        return Trace(parent), b""
    return None, (parent or Parent(random.getrandbits(128) or 1, new_span_id(), sampled=False)).line()

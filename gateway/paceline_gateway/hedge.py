"""The second attempt of a stream that its worker keeps waiting: what comes of it is kept until it is first or fails.

Once adopted it passes on to the call what has come, as it came, and all that follows.
"""

from typing import Protocol

from paceline_core.registry.enums import HedgeResult
from paceline_gateway.desk import Desk
from paceline_gateway.http.message import Headers
from paceline_gateway.http.pool import Exchange, Pool
from paceline_gateway.http.upstream import Loss, Receiver
from paceline_gateway.outbound import Outbound
from paceline_gateway.queues.ticket import Ticket
from paceline_gateway.requests import events as e
from paceline_gateway.requests.nouns import Meter
from paceline_gateway.requests.stream import StreamScan
from paceline_gateway.routing.worker import Worker
from paceline_gateway.telemetry.trace import Trace

KEPT_BYTES = 1 << 20
"""More without content is no answer."""


class Owner(Receiver, Protocol):
    """The call that has a rival."""

    def on(self, event: e.Event) -> None:
        """Something happened."""
        ...


class Rival:
    """One call's. Receives its own worker's response. `ticket` holds its slot."""

    __slots__ = (
        "_adopted",
        "_desk",
        "_exchange",
        "_head",
        "_kept",
        "_owner",
        "_scan",
        "_size",
        "_trace",
        "ticket",
        "worker",
    )

    def __init__(self, owner: Owner, worker: Worker, ticket: Ticket, desk: Desk, trace: Trace | None) -> None:
        self._owner = owner
        self._desk = desk
        self._trace = trace
        self._adopted = False
        self._head: tuple[int, Headers] | None = None
        self._kept: list[bytes] = []
        self._size = 0
        self._scan = StreamScan(Meter())
        self._exchange: Exchange | None = None
        self.worker = worker
        self.ticket = ticket

    def send(self, pool: Pool, outbound: Outbound, hop: str, deadline_ms: int, now: float) -> None:
        """Ask its worker."""
        trace = b"" if self._trace is None else self._trace.doubled(self.worker.name, now)
        message = outbound.message(self.worker, hop, deadline_ms, trace=trace)
        self._exchange = pool.send(self.worker.address, message, self)

    def head(self, status: int, headers: Headers) -> None:
        """Status and headers; what is no stream is none of the client's business."""
        if self._adopted:
            self._owner.head(status, headers)
        elif status != 200 or not headers.get(b"content-type", b"").startswith(b"text/event-stream"):
            self._owner.on(e.RivalLost(suspect=status == 503))
        else:
            self._head = status, headers

    def data(self, data: bytes) -> None:
        """A piece of the stream."""
        if self._adopted:
            self._owner.data(data)
            return
        self._kept.append(data)
        self._size += len(data)
        self._scan.feed(data)
        if self._scan.failed or self._size > KEPT_BYTES:
            self._owner.on(e.RivalLost(suspect=False))
        elif self._scan.began:
            self._owner.on(e.Overtaken())

    def end(self) -> None:
        """The response is complete; before any content it is no answer."""
        if self._adopted:
            self._owner.end()
        else:
            self._owner.on(e.RivalLost(suspect=False))

    def lost(self, loss: Loss) -> None:
        """It broke off."""
        if self._adopted:
            self._owner.lost(loss)
        else:
            self._owner.on(e.RivalLost(suspect=loss is not Loss.STALE))

    @property
    def exchange(self) -> Exchange | None:
        """What it has with its worker."""
        return self._exchange

    def adopt(self, *, paused: bool) -> None:
        """It is the call's answer now."""
        self._adopted = True
        self._desk.series.hedges[HedgeResult.WON].inc()
        if self._trace is not None:
            self._trace.adopted()
        if paused and self._exchange is not None:
            self._exchange.pause(True)
        if self._head is not None:
            self._owner.head(*self._head)
        kept, self._kept = self._kept, []
        if kept:
            self._owner.data(b"".join(kept))

    def retract(self, now: float, *, suspect: bool, failed: bool) -> None:
        """Nobody needs it; `failed`: because it cannot answer."""
        if self._exchange is not None:
            self._exchange.abort()
        if self._trace is not None:
            self._trace.retracted(now)
        self._desk.dispatcher.free(self.ticket, now, suspect=suspect)
        self._desk.series.hedges[HedgeResult.FAILED if failed else HedgeResult.LOST].inc()

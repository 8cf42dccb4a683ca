"""One request between its client and its worker: feeds the life machine, carries out what it says, moves bytes.

After the first content a stream's bytes go on packet by packet; the machine hears of the first and the last only.
"""

import re
from collections.abc import Callable
from typing import Any, ClassVar, Protocol

from paceline_core.errors import Code, RequestError
from paceline_core.wire import PREFIX
from paceline_gateway.admission import Admission
from paceline_gateway.config import Limits
from paceline_gateway.desk import Desk
from paceline_gateway.http.message import Headers, Request
from paceline_gateway.http.pool import Exchange, Pool
from paceline_gateway.http.reply import Reply, request_id_field
from paceline_gateway.http.upstream import Loss
from paceline_gateway.queues.ticket import Ticket
from paceline_gateway.quota.nouns import Reservation, Waiter
from paceline_gateway.requests import events as e
from paceline_gateway.requests.life import Life, State
from paceline_gateway.requests.nouns import Record, Terms, Waits
from paceline_gateway.requests.stream import StreamScan, read_server_timing, read_usage
from paceline_gateway.routing.worker import Worker

_TRACEPARENT = re.compile(rb"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_PASSED_ON = (b"content-type", b"cache-control", b"retry-after", b"retry-after-ms", b"x-should-retry")
_LOST = {
    Loss.STALE: e.Lost(harmless=True, suspect=False),
    Loss.REFUSED: e.Lost(harmless=True),
    Loss.CLOSED: e.Lost(),
    Loss.INVALID: e.Lost(),
}


class Front(Protocol):
    """What a call needs of its gateway."""

    limits: Limits
    waits: Waits
    pool: Pool

    def now(self) -> float:
        """Monotonic seconds."""
        ...

    def hop(self, service: str) -> str:
        """A token for this service's workers."""
        ...

    def moved(self, desk: Desk) -> None:
        """Somebody joined the queue or a worker has more room."""
        ...

    def ended(self, call: "Call", record: Record) -> None:
        """A call is over."""
        ...


class Call:
    """One request from its last byte to its answer's last byte. Receives the worker's response."""

    __slots__ = (
        "_collected",
        "_exchange",
        "_fields",
        "_front",
        "_last",
        "_scan",
        "_size",
        "_status",
        "_stream",
        "_worker",
        "admission",
        "desk",
        "life",
        "quota_fields",
        "reply",
        "request",
        "request_id",
        "reservation",
        "ticket",
        "waiter",
    )

    def __init__(self, front: Front, request: Request, reply: Reply, request_id: bytes) -> None:
        self._front = front
        self._exchange: Exchange | None = None
        self._worker: Worker | None = None
        self.request = request
        self.request_id = request_id
        self.reply = reply
        self.life = Life(request.received, front.waits)
        self.desk: Desk | None = None
        self.admission: Admission | None = None
        self.ticket: Ticket | None = None
        self.reservation: Reservation | None = None
        self.waiter: Waiter | None = None
        self.quota_fields = b""
        self._reset()
        reply.on_gone = self._client_gone
        reply.on_pressure = self._pressure

    @property
    def waiting(self) -> bool:
        """It stands in the queue, or waits to be let into it."""
        return self.life.state in (State.ADMITTED, State.QUEUED)

    @property
    def choices(self) -> int:
        """Answers that it asks for."""
        return 1 if self.admission is None else self.admission.choices

    def admitted(self, desk: Desk, admission: Admission, ticket: Ticket) -> None:
        """It is known what it asks for, and of whom."""
        self.desk, self.admission, self.ticket = desk, admission, ticket
        name = admission.request_class
        terms = Terms(
            service=desk.key,
            request_class=name,
            stream=admission.stream,
            prompt_tokens=ticket.prompt_tokens,
            hold_s=desk.service.classes[name].hold_timeout_s,
            attempts=admission.destination.attempts,
        )
        self.on(e.Admitted(terms, desk.budget(admission.destination.retry_share)))

    def assigned(self, worker: Worker) -> None:
        """The queue chose a worker."""
        self._worker = worker
        self.on(e.Assigned(worker.name))

    def on(self, event: e.Event) -> None:
        """Something happened: tell the machine, do what it says."""
        now = self._front.now()
        moved = False
        for action in self.life.on(event, now):
            moved = self._doings[type(action)](self, action, now) or moved
        if moved and self.desk is not None:
            self._front.moved(self.desk)

    def head(self, status: int, headers: Headers) -> None:
        """The worker's status and headers."""
        self._status, self._stream = status, headers.get(b"content-type", b"").startswith(b"text/event-stream")
        self._fields = self._answer_fields(headers)
        if b"server-timing" in headers:
            read_server_timing(headers[b"server-timing"], self.life.meter)
        self.on(e.Answered(status))

    def data(self, data: bytes) -> None:
        """A piece of the worker's answer."""
        if not self._stream:
            self._collect(data)
            return
        scan = self._scan
        out = scan.feed(data)
        if scan.failed:
            self.on(e.Failed())
            if self._scan is not scan or self.life.state is State.QUEUED:
                return  # another worker tries
        if self.life.state is State.STREAMING:
            self._forward(out)
        elif scan.began:
            self._begin(out)

    def end(self) -> None:
        """The worker's answer is complete."""
        self._exchange = None
        if not self._stream:
            read_usage(b"".join(self._collected), self.life.meter)
            self.on(e.Finished())
        elif self._scan.done or self._scan.failed:
            self._finish_stream()
        else:
            self.on(_LOST[Loss.CLOSED])

    def lost(self, loss: Loss) -> None:
        """The worker's answer broke off."""
        self._exchange = None
        if self._stream and self._scan.done:
            self._finish_stream()
        else:
            self.on(_LOST[loss])

    def _finish_stream(self) -> None:
        rest = self._scan.finish()
        if self.life.state is State.DISPATCHED:
            self._begin(rest)
        elif rest:
            self.reply.more(rest)
        self.on(e.Finished())

    def _begin(self, first: bytes) -> None:
        self.on(e.Began())
        if self.desk is not None and self.ticket is not None:
            self.desk.dispatcher.began(self.ticket)
            self._front.moved(self.desk)
        self._last = self._front.now()
        self.reply.begin(self._status, self._fields, first)

    def _forward(self, out: bytes) -> None:
        now = self._front.now()
        self.life.progress(now)
        fresh = self._scan.fresh
        if fresh and self.desk is not None:
            self.desk.series.itl.observe((now - self._last) / fresh)
            self._last = now
        self.reply.more(out)

    def _collect(self, data: bytes) -> None:
        self._collected.append(data)
        self._size += len(data)
        if self._size > self._front.limits.answer_bytes:
            message = f"The worker's answer is over the limit of {self._front.limits.answer_bytes} bytes; stream it."
            self.on(e.Refused(RequestError(Code.UPSTREAM_ERROR, message)))

    def _do_enqueue(self, action: e.Enqueue, now: float) -> bool:
        if self.desk is not None and self.ticket is not None:
            if action.again:
                self.desk.dispatcher.rejoin(self.ticket, self.life.deadline)
            else:
                self.desk.dispatcher.join(self.ticket, now)
        return True

    def _do_withdraw(self, _: e.Withdraw, _now: float) -> bool:
        if self.desk is not None and self.ticket is not None:
            self.desk.dispatcher.leave(self.ticket)
        return False

    def _do_send(self, _: e.Send, _now: float) -> bool:
        if self._worker is not None and self.admission is not None and self.desk is not None:
            self._reset()
            message = self._message(self._worker, self.admission, self._front.hop(self.desk.key))
            self._exchange = self._front.pool.send(self._worker.address, message, self)
        return False

    def _do_drop(self, _: e.Drop, _now: float) -> bool:
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.abort()
        return False

    def _do_free(self, action: e.Free, now: float) -> bool:
        if self.desk is not None and self.ticket is not None:
            self.desk.dispatcher.free(self.ticket, now, suspect=action.suspect)
        return True

    def _do_deliver(self, _: e.Deliver, _now: float) -> bool:
        self.reply.whole(self._status, self._fields, b"".join(self._collected))
        return False

    def _do_close(self, _: e.Close, _now: float) -> bool:
        self.reply.end()
        return False

    def _do_fail(self, action: e.Fail, _now: float) -> bool:
        self.reply.fail(action.error, request_id_field(self.request_id) + self.quota_fields)
        return False

    def _do_settle(self, action: e.Settle, _now: float) -> bool:
        self._front.ended(self, action.record)
        return False

    def _client_gone(self) -> None:
        self.on(e.ClientGone())

    def _pressure(self, paused: bool) -> None:
        if self._exchange is not None:
            self._exchange.pause(paused)

    def _reset(self) -> None:
        """Nothing of an earlier attempt counts for the next one."""
        self._scan = StreamScan(self.life.meter)
        self._stream = False
        self._status = 200
        self._fields = b""
        self._collected: list[bytes] = []
        self._size = 0
        self._last = 0.0

    def _message(self, worker: Worker, admission: Admission, hop: str) -> list[bytes]:
        head, body = self.request.head, admission.body
        host, port = worker.address
        lines = (
            f"POST {head.path} HTTP/1.1\r\nhost: {host}:{port}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\nx-request-id: {self.request_id.decode()}\r\n"
            f"x-paceline-hop: {hop}\r\n"
            f"x-paceline-class: {admission.request_class}\r\nx-paceline-tenant: {self._tenant()}\r\n"
            f"x-paceline-deadline-ms: {self._deadline_ms()}\r\n"
        ).encode()
        if admission.prefix is not None:
            lines += f"{PREFIX}: {admission.prefix.header()}\r\n".encode()
        if promise := self._tpot_ms(admission):
            lines += b"x-paceline-tpot-ms: %d\r\n" % promise
        trace = head.headers.get(b"traceparent", b"")
        if _TRACEPARENT.fullmatch(trace):
            lines += b"traceparent: " + trace + b"\r\n"
        return [lines + b"\r\n", body]

    def _tenant(self) -> str:
        tenant = self.request.head.tenant
        return "" if tenant is None else tenant.name

    def _tpot_ms(self, admission: Admission) -> int:
        """The strictest time per output token promised to its class, 0 if none is."""
        classes = {} if self.desk is None else self.desk.service.classes
        targets = classes[admission.request_class].targets if classes else ()
        return round(min((target.seconds for target in targets if target.metric == "tpot"), default=0.0) * 1000)

    def _deadline_ms(self) -> int:
        waits, limit = self._front.waits, self.life.deadline - self._front.now()
        return max(1, round(min(limit, waits.first_token_s) * 1000))

    def _answer_fields(self, headers: Headers) -> bytes:
        passed = [b"%b: %b\r\n" % (name, headers[name]) for name in _PASSED_ON if name in headers]
        return request_id_field(self.request_id) + self.quota_fields + b"".join(passed)

    _doings: ClassVar[dict[type[e.Action], Callable[[Any, Any, float], bool]]] = {
        e.Enqueue: _do_enqueue,
        e.Withdraw: _do_withdraw,
        e.Send: _do_send,
        e.Drop: _do_drop,
        e.Free: _do_free,
        e.Deliver: _do_deliver,
        e.Close: _do_close,
        e.Fail: _do_fail,
        e.Settle: _do_settle,
    }
    """How each action is carried out; True if the queue should be looked at afterwards."""

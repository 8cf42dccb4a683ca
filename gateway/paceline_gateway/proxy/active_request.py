"""One request between its client and its worker: feeds the life machine, carries out what it says, moves bytes.

After the first content a stream's bytes go on packet by packet; the machine hears of the first and the last only.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from paceline_core.errors import Code, RequestError
from paceline_core.telemetry import Histogram
from paceline_core.wire import VOCABULARY
from paceline_gateway.api.admission import AdmittedRequest
from paceline_gateway.api.request_terms import request_terms
from paceline_gateway.http.connection_pool import UpstreamExchange
from paceline_gateway.http.message import Headers, HttpRequest
from paceline_gateway.http.response import ResponseWriter, passed_on, request_id_field
from paceline_gateway.http.upstream_connection import DisconnectReason
from paceline_gateway.proxy.request_context import RequestContext
from paceline_gateway.proxy.resume import NO_STREAM, ResumeState
from paceline_gateway.proxy.upstream_request import UpstreamRequest
from paceline_gateway.proxy.worker_deaths import DeathVerdict
from paceline_gateway.queueing.queued_request import QueuedRequest
from paceline_gateway.quota.types import PendingReservation, Reservation, used_by_failed, used_by_refused
from paceline_gateway.request import events as e
from paceline_gateway.request.group_testing import PROOF, SuspectGroup
from paceline_gateway.request.machine import RequestMachine
from paceline_gateway.request.sse_scanner import SseScanner, read_code, read_server_timing, read_usage
from paceline_gateway.request.types import DISPATCHED, STREAMING
from paceline_gateway.routing.worker import Worker
from paceline_gateway.services.service_state import ServiceState
from paceline_gateway.telemetry.trace import Trace

_VOCABULARY = VOCABULARY.encode()
_DRAINING = b"x-paceline-draining"


class ActiveRequest:
    """One request from its last byte to its answer's last byte. Receives the worker's response."""

    __slots__ = (
        "_brought", "_collected", "_exchange", "_fields", "_front", "_gaps", "_last", "_lost", "_next",
        "_outbound", "_paused", "_scan", "_size", "_status", "_stream", "_worker", "admission", "continuation",
        "desk", "life", "quota_fields", "reply", "request", "request_id", "reservation", "ticket", "trace", "waiter",
    )  # fmt: skip

    def __init__(self, front: RequestContext, request: HttpRequest, reply: ResponseWriter, request_id: bytes) -> None:
        self._front = front
        self._exchange: UpstreamExchange | None = None
        self._worker: Worker | None = None
        self._outbound: UpstreamRequest | None = None
        self._gaps: Histogram | None = None
        self._last, self._brought = 0.0, 0
        self._lost: Worker | None = None
        self._next: tuple[ServiceState, AdmittedRequest, QueuedRequest] | None = None
        self._paused = False
        self.request, self.request_id, self.reply = request, request_id, reply
        self.life = RequestMachine(request.received, front.waits)
        self.continuation = ResumeState(0, 0)
        self.desk: ServiceState | None = None
        self.admission: AdmittedRequest | None = None
        self.ticket: QueuedRequest | None = None
        self.trace: Trace | None = None
        self.reservation: Reservation | None = None
        self.waiter: PendingReservation | None = None
        self.quota_fields = b""
        reply.on_gone, reply.on_pressure = lambda stalled: self.on(e.ClientGone(stalled)), self._pressure

    @property
    def earlier(self) -> Sequence[tuple[Worker, int]]:
        """Workers that its stream has lost, each with the output tokens there were by then."""
        return self.continuation.earlier

    def admitted(self, desk: ServiceState, admission: AdmittedRequest, ticket: QueuedRequest) -> None:
        """It is known what it asks for, and of whom."""
        self._belong(desk, admission, ticket)
        budget = desk.budget(admission.destination.retry_share)
        self.on(e.Admitted(request_terms(desk, admission, ticket), budget))

    def diverted(self, desk: ServiceState, admission: AdmittedRequest, ticket: QueuedRequest) -> None:
        """Another destination of its route takes it."""
        self._next = (desk, admission, ticket)
        if self.ticket is not None:
            ticket.take_suspicion(self.ticket)
        budget = desk.budget(admission.destination.retry_share)
        self.on(e.Diverted(request_terms(desk, admission, ticket), budget))

    def assigned(self, worker: Worker) -> None:
        """The queue chose a worker."""
        self._worker = worker
        self.on(e.Assigned(worker.name))

    def count_gaps(self) -> None:
        """From now on, where its class counts them now: those between its tokens."""
        if self.desk is not None and self.ticket is not None:
            self._gaps = self.desk.series.classes[self.ticket.request_class].itl

    def on(self, event: e.Event) -> None:
        """Something happened: tell the machine, do what it says."""
        now, desk = self._front.now(), self.desk
        moved = False
        for action in self.life.on(event, now):
            moved = self._doings[type(action)](self, action, now) or moved
        if moved and desk is not None:
            self._front.moved(desk)
            if self.desk is not None and self.desk is not desk:
                self._front.moved(self.desk)

    def head(self, status: int, headers: Headers) -> None:
        """The worker's status and headers."""
        if status == 401:  # it does not believe this gateway, which no client can mend
            self._do_drop(e.AbortUpstream(), 0.0)
            self.lost(DisconnectReason.INVALID)
            return
        self._status, self._stream = status, headers.get(b"content-type", b"").startswith(b"text/event-stream")
        quota = self.quota_fields if status < 400 else self._front.refunded(self, used_by_refused(status))
        self._fields = request_id_field(self.request_id) + quota + passed_on(headers)
        if _DRAINING in headers and self._worker is not None:
            self._worker.drains = True
        if b"server-timing" in headers:
            read_server_timing(headers[b"server-timing"], self.life.meter)
        if not self.life.begun:
            self.continuation.vocabulary = headers.get(_VOCABULARY, b"")
        no_rest, said = status == 200 and self.life.begun and not self._stream, DeathVerdict()
        if self.desk is not None and self._worker is not None:
            said = self._front.deaths.head(self.desk, self._worker, self, headers, self._front.now())
        self.on(e.Answered(NO_STREAM if no_rest else status, *said))

    def data(self, data: bytes) -> None:
        """A piece of the worker's answer."""
        if not self._stream:
            self._collect(data)
            return
        scan = self._scan
        out = scan.feed(data)
        if scan.failed:
            self.on(e.AttemptFailed(scan.error))
            if self._scan is not scan or self.life.waiting:
                return  # another worker tries
        if scan.done and self._exchange is not None and self._exchange.complete:
            self.reply.hold()
        if self.life.state is STREAMING:
            self._forward(out)
        elif out and scan.began:
            self._begin(out)

    def end(self) -> None:
        """The worker's answer is complete."""
        self._exchange = None
        if not self._stream:
            whole = b"".join(self._collected)
            read_usage(whole, self.life.meter)
            self.on(e.Finished(read_code(whole) if self._status >= 400 else None))
        elif self._scan.done or self._scan.failed:
            self._finish_stream()
        else:
            self._broke_off(DisconnectReason.CLOSED)

    def lost(self, loss: DisconnectReason) -> None:
        """The worker's answer broke off."""
        self._exchange = None
        if self._stream and self._scan.done:
            self._finish_stream()
        else:
            self._broke_off(loss)

    def resolve_loss(self, worker: Worker, loss: DisconnectReason, part: SuspectGroup | None) -> None:
        """Why its answer broke off is known."""
        if worker is self._lost:
            self._lost = None
            self.on(self.continuation.lost(loss, self._scan.moved, part, begun=self.life.begun))

    def expired(self, *, held: bool) -> None:
        """The limit of what it waits for has passed; `held`: there is no worker."""
        if self.life.state is not STREAMING:
            self.on(e.Expired(held=held))
        elif self._scan.done:
            self._do_drop(e.AbortUpstream(), 0.0)
            self._finish_stream()
        else:
            self.on(e.Expired(held=held, cut=self.continuation.cut()))

    def _belong(self, desk: ServiceState, admission: AdmittedRequest, ticket: QueuedRequest) -> None:
        self.desk, self.admission, self.ticket = desk, admission, ticket
        self.continuation = ResumeState(self._front.limits.resume_bytes, ticket.prompt_tokens)
        self.count_gaps()
        promise, told = desk.service.classes[admission.request_class].tpot_s, b""
        if self.trace is None:
            traceparent = self.request.head.headers.get(b"traceparent", b"")
            self.trace, told = self._front.tracing.begin(traceparent, desk.service.sample_ratio)
        self._outbound = UpstreamRequest(self.request.head, self.request_id, admission, promise, told)

    def _broke_off(self, loss: DisconnectReason) -> None:
        self._lost = self._worker
        if self._worker is not None and self.desk is not None:
            self._front.deaths.lost(self.desk, self._worker, self, loss, self._scan.moved)

    def _finish_stream(self) -> None:
        rest = self._scan.finish()
        if self.life.state is DISPATCHED:
            self._begin(rest)
        elif rest:
            self.reply.more(rest)
        self.on(e.Finished())

    def _begin(self, first: bytes) -> None:
        again = self.life.begun
        self.on(e.Began())
        if self.desk is not None and self.ticket is not None:
            self.desk.dispatcher.began(self.ticket)
            self._front.moved(self.desk)
        if again:
            self._forward(first)
        else:
            self._last = self._front.now()
            self.reply.begin(self._status, self._fields, first)
            self._got_on(self._scan.fresh)

    def _forward(self, out: bytes) -> None:
        self.life.heard = now = self._front.now()
        fresh = self._scan.fresh
        if fresh and self._gaps is not None:
            self._gaps.observe_many((now - self._last) / fresh, fresh)
            self._last = now
        self.reply.more(out)
        self._got_on(fresh)

    def cleared(self) -> None:
        """Its worker says that it has got on."""
        self._got_on(max(PROOF - self._brought, 0))

    def _got_on(self, tokens: int) -> None:
        ticket, desk = self.ticket, self.desk
        self._brought += tokens
        if ticket is None or desk is None or not (ticket.suspect or ticket.died_at):
            return
        if desk.dispatcher.got_on(ticket, self._brought, self._front.now()):
            self._front.moved(desk)

    def _collect(self, data: bytes) -> None:
        self._collected.append(data)
        self._size += len(data)
        if self._size > self._front.limits.answer_bytes:
            message = f"The worker's answer is over the limit of {self._front.limits.answer_bytes} bytes; stream it."
            self.on(e.Refused(RequestError(Code.UPSTREAM_ERROR, message)))

    def _do_enqueue(self, action: e.Enqueue, now: float) -> bool:
        if self.trace is not None:
            self.trace.waiting(now)
        if self.desk is None or self.ticket is None:
            return False
        dispatcher, self.ticket.deadline = self.desk.dispatcher, self.life.deadline
        if action.resume and self._worker is not None:
            self.continuation.carry(self.ticket, self.life.meter.output, self.desk.fleet, self._worker)
        if action.again:
            dispatcher.rejoin(self.ticket, self.life.deadline)
        elif (worker := dispatcher.pass_by(self.ticket, now)) is not None:
            self.assigned(worker)
            return False
        else:
            dispatcher.join(self.ticket, now)
        return True

    def _do_withdraw(self, _: e.Dequeue, _now: float) -> bool:
        if self.desk is not None and self.ticket is not None:
            self.desk.dispatcher.leave(self.ticket)
        return False

    def _do_seek(self, action: e.TryFallback, _now: float) -> bool:
        self._front.seek(self, last=action.last)
        return False

    def _do_move(self, _: e.SwitchDestination, _now: float) -> bool:
        if self._next is not None:
            self._belong(*self._next)
        return True

    def _do_send(self, _: e.Send, now: float) -> bool:
        worker = self._worker
        if worker is not None and self._outbound is not None and self.desk is not None:
            self._reset()
            resume = self.continuation.message if self.life.begun else b""
            trace = b"" if self.trace is None else self.trace.sent(worker.name, now, resumed=self.life.begun)
            told = trace + self._front.deaths.introduction(self.ticket, now)
            token = self._front.internal_token(self.desk.key)
            message = self._outbound.message(worker, token, self._deadline_ms(), resume, told)
            self._exchange = self._front.pool.send(worker.address, message, self)
            if self._paused:
                self._exchange.pause(True)
        return False

    def _do_resumed(self, action: e.Resumed, _now: float) -> bool:
        if self.desk is not None:
            self.desk.series.resumed(action.reason, action.gap)
        return False

    def _do_drop(self, _: e.AbortUpstream, _now: float) -> bool:
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.abort()
        return False

    def _do_free(self, action: e.ReleaseSlot, now: float) -> bool:
        if self.trace is not None:
            self.trace.freed(now)
        if self.desk is not None and self.ticket is not None:
            self._lost = None
            self.desk.dispatcher.free(self.ticket, now, suspect=action.suspect)
        return True

    def _do_accuse(self, action: e.Accuse, now: float) -> bool:
        if self.ticket is not None:
            self.ticket.accuse(action.part, self._brought, now)
        return False

    def _do_deliver(self, _: e.SendResponse, _now: float) -> bool:
        self.reply.whole(self._status, self._fields, b"".join(self._collected))
        return False

    def _do_close(self, _: e.Close, _now: float) -> bool:
        self.reply.end()
        return False

    def _do_fail(self, action: e.Fail, _now: float) -> bool:
        quota = self.quota_fields
        if self.reservation is not None:
            quota = self._front.refunded(self, used_by_failed(action.error.code, self.reservation.use))
        self.reply.fail(action.error, request_id_field(self.request_id) + quota)
        return False

    def _do_settle(self, action: e.Settle, _now: float) -> bool:
        self._front.ended(self, action.record)
        return False

    def _pressure(self, paused: bool) -> None:
        self._paused = paused
        if self._exchange is not None:
            self._exchange.pause(paused)

    def _reset(self) -> None:
        """Nothing of an earlier attempt counts for the next one, unless the client has it."""
        if not self.life.begun:
            self.life.meter.output = 0
            if self.admission is not None and self.admission.ours and self.admission.stream:
                self.continuation.restart()
        self._scan = SseScanner(self.life.meter, self.continuation.told, resumed=self.life.begun)
        self._stream, self._brought, self._status = False, 0, 200
        self._fields, self._size = b"", 0
        self._collected: list[bytes] = []

    def _deadline_ms(self) -> int:
        waits, limit = self._front.waits, self.life.deadline - self._front.now()
        return max(1, round(min(limit, waits.first_token_s) * 1000))

    _doings: ClassVar[dict[type[e.Action], Callable[[Any, Any, float], bool]]] = {
        e.Enqueue: _do_enqueue, e.Dequeue: _do_withdraw, e.TryFallback: _do_seek, e.SwitchDestination: _do_move,
        e.Send: _do_send, e.Resumed: _do_resumed, e.AbortUpstream: _do_drop, e.ReleaseSlot: _do_free,
        e.Accuse: _do_accuse, e.SendResponse: _do_deliver, e.Close: _do_close, e.Fail: _do_fail,
        e.Settle: _do_settle,
    }  # fmt: skip
    """How each action is carried out; True if the queue should be looked at afterwards."""

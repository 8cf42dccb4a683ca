"""A request between its client and its worker: feeds the request machine, executes its actions, moves bytes.

Calls go in one direction: it calls the parts in its `RequestContext` and acts on what they return. After the first
content a stream's bytes are forwarded packet by packet; the machine gets only the first and the last event.
"""

from collections.abc import Callable
from dataclasses import dataclass

from paceline_core.errors import Code, RequestError
from paceline_core.telemetry import Histogram
from paceline_core.wire import VOCABULARY
from paceline_gateway.api.admission import AdmittedRequest
from paceline_gateway.config import HttpLimits
from paceline_gateway.http.connection_pool import ConnectionPool, DisconnectReason, UpstreamExchange
from paceline_gateway.http.message import Headers, HttpRequest
from paceline_gateway.http.response import ResponseWriter, request_id_field
from paceline_gateway.proxy.resume import NO_STREAM, ResumeState
from paceline_gateway.proxy.upstream_request import UpstreamRequest
from paceline_gateway.queueing.queued_request import QueuedRequest
from paceline_gateway.quota.manager import QuotaManager
from paceline_gateway.quota.types import PendingReservation, Reservation, used_by_failed, used_by_refused
from paceline_gateway.request import events as e
from paceline_gateway.request.group_testing import PROOF, SuspectGroup
from paceline_gateway.request.machine import RequestMachine
from paceline_gateway.request.sse_scanner import SseScanner, StreamJournal, read_code, read_server_timing, read_usage
from paceline_gateway.request.types import DISPATCHED, STREAMING, RequestRecord, Timeouts
from paceline_gateway.routing.worker import Worker
from paceline_gateway.services.service_state import Placement, ServiceState
from paceline_gateway.services.worker_deaths import DEATH_HEADERS, DeathVerdict, WorkerDeaths
from paceline_gateway.telemetry.trace import RequestTracing, Trace

_VOCABULARY = VOCABULARY.encode()
_DRAINING = b"x-paceline-draining"
_PASSED_ON = (b"content-type", b"cache-control", b"retry-after", b"retry-after-ms", b"x-should-retry")
"""Headers of a worker's answer that are forwarded to the client."""


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The parts of a gateway that a request uses.

    `dispatch`: the service has more room, or more requests wait. `fall_back`: the placement at another destination for
    a request that workers failed, or None; `last`: its next attempt here is its last. `settle`: it has ended.
    """

    limits: HttpLimits
    timeouts: Timeouts
    pool: ConnectionPool
    tracing: RequestTracing
    deaths: WorkerDeaths
    quotas: QuotaManager
    now: Callable[[], float]
    internal_token: Callable[[str], str]
    dispatch: Callable[[ServiceState], None]
    fall_back: "Callable[[ActiveRequest, bool], Placement | None]"
    settle: "Callable[[ActiveRequest, RequestRecord], None]"


class ActiveRequest:
    """A request from its last byte to its answer's last byte. Receives the worker's response."""

    __slots__ = (
        "_collected", "_context", "_exchange", "_fields", "_itl", "_last", "_lost", "_next", "_paused", "_progress",
        "_scan", "_size", "_status", "_stream", "_upstream", "_worker", "admission", "http", "machine", "pending",
        "queued", "quota_fields", "reply", "request_id", "reservation", "resume", "service", "trace",
    )  # fmt: skip

    def __init__(
        self, context: RequestContext, http: HttpRequest, reply: ResponseWriter, request_id: bytes, tenant: str
    ) -> None:
        self._context = context
        self._exchange: UpstreamExchange | None = None
        self._worker: Worker | None = None
        self._upstream: UpstreamRequest | None = None
        self._itl: Histogram | None = None
        self._last, self._progress = 0.0, 0
        self._lost: Worker | None = None
        self._next: Placement | None = None
        self._paused = False
        self.http, self.request_id, self.reply = http, request_id, reply
        self.resume = ResumeState(0)
        self.machine = RequestMachine(http.received, context.timeouts)
        self.machine.on(e.Authenticated(tenant), context.now())
        self.service: ServiceState | None = None
        self.admission: AdmittedRequest | None = None
        self.queued: QueuedRequest | None = None
        self.trace: Trace | None = None
        self.reservation: Reservation | None = None
        self.pending: PendingReservation | None = None
        self.quota_fields = b""
        reply.on_gone, reply.on_pressure = lambda stalled: self.on(e.ClientGone(stalled)), self._pressure

    def admitted(self, placement: Placement) -> None:
        """Join the queue of its service."""
        self._place(placement)
        self.on(e.Admitted(placement.terms, placement.budget))

    def diverted(self, placement: Placement) -> None:
        self._next = placement
        if self.queued is not None:
            placement.queued.take_suspicion(self.queued)
        self.on(e.Diverted(placement.terms, placement.budget))

    def measure_itl(self) -> None:
        """Observe the gaps between tokens in the current histogram of its class."""
        if self.service is not None and self.queued is not None:
            self._itl = self.service.series.classes[self.queued.request_class].itl

    def on(self, event: e.Event) -> None:
        """Pass an event to the machine and execute its actions."""
        now, service = self._context.now(), self.service
        changed = False
        for action in self.machine.on(event, now):
            changed = self._execute(action, now) or changed
        if changed and service is not None:
            self._context.dispatch(service)
            if self.service is not None and self.service is not service:
                self._context.dispatch(self.service)

    def send(self, name: str, now: float) -> None:
        context, machine, service = self._context, self.machine, self.service
        if self._upstream is None or service is None:
            return
        worker = self._worker = service.pool.workers[name]
        if not machine.begun:  # discard what an earlier attempt left
            machine.meter.output = 0
            if self.admission is not None and self.admission.native and self.admission.stream:
                self.resume.journal = StreamJournal(context.limits.resume_bytes)
        self._scan = SseScanner(machine.meter, self.resume.journal, resumed=machine.begun)
        self._stream, self._progress, self._status = False, 0, 200
        self._fields, self._size = b"", 0
        self._collected: list[bytes] = []
        resume = self.resume.message if machine.begun else b""
        limit_s = min(machine.limit - context.now(), context.timeouts.first_token_s)
        trace = b"" if self.trace is None else self.trace.sent(worker.name, now, resumed=machine.begun)
        suspect = self.queued is not None and self.queued.suspect
        own = trace + context.deaths.introduction(self.queued, now) if suspect else trace
        address, token = worker.address, context.internal_token(service.key)
        message = self._upstream.message(address, token, max(1, round(limit_s * 1000)), resume, own)
        self._exchange = context.pool.send(address, message, self)
        if self._paused:
            self._exchange.pause(True)

    def head(self, status: int, headers: Headers) -> None:
        if status == 401:  # the worker rejects this gateway's token; the client cannot fix that
            self._abort()
            self.lost(DisconnectReason.INVALID)
            return
        self._status, self._stream = status, headers.get(b"content-type", b"").startswith(b"text/event-stream")
        quota, now = self.quota_fields, self._context.now()
        if status >= 400:
            held = self.reservation
            quota = b"" if held is None else self._context.quotas.refunded(held, used_by_refused(status), now)
        lines = [b"%b: %b\r\n" % (name, headers[name]) for name in _PASSED_ON if name in headers]
        if self.admission is not None and self.admission.degraded:
            lines.append(b"x-paceline-degraded: %b\r\n" % ", ".join(self.admission.degraded).encode())
        self._fields = b"x-request-id: %b\r\n%b%b" % (self.request_id, quota, b"".join(lines))
        if _DRAINING in headers and self._worker is not None:
            self._worker.drains = True
        if b"server-timing" in headers:
            read_server_timing(headers[b"server-timing"], self.machine.meter)
        if not self.machine.begun:
            self.resume.vocabulary = headers.get(_VOCABULARY, b"")
        no_rest, verdict = status == 200 and self.machine.begun and not self._stream, DeathVerdict()
        of_deaths = not headers.keys().isdisjoint(DEATH_HEADERS)
        if of_deaths and self.service is not None and self._worker is not None:
            verdict = self._context.deaths.head(self.service, self._worker, self, headers, now)
        self.on(e.Answered(NO_STREAM if no_rest else status, *verdict))

    def data(self, data: bytes, last: bool) -> None:
        if not self._stream:
            self._collected.append(data)
            self._size += len(data)
            limit = self._context.limits.answer_bytes
            if self._size > limit:
                message = f"The worker's answer is over the limit of {limit} bytes; stream it."
                self.on(e.Refused(RequestError(Code.UPSTREAM_ERROR, message)))
            return
        scan = self._scan
        out = scan.feed(data)
        if scan.failed:
            self.on(e.AttemptFailed(scan.error))
            if self._scan is not scan or self.machine.waiting:
                return  # it is retried at another worker
        if scan.done and last:
            self.reply.hold()
        if self.machine.state is STREAMING:
            self.forward(out)
        elif out and scan.began:
            self._begin(out)

    def forward(self, out: bytes) -> None:
        self.machine.heard = now = self._context.now()
        fresh = self._scan.fresh
        if fresh and self._itl is not None:
            self._itl.observe_many((now - self._last) / fresh, fresh)
            self._last = now
        self.reply.more(out)
        self._progress += fresh
        if self.queued is not None and (self.queued.suspect or self.queued.died_at):
            self._report_progress(self.queued)

    def end(self) -> None:
        self._exchange = None
        if not self._stream:
            whole = b"".join(self._collected)
            read_usage(whole, self.machine.meter)
            self.on(e.Finished(read_code(whole) if self._status >= 400 else None))
        elif self._scan.done or self._scan.failed:
            self.finish()
        else:
            self._broke_off(DisconnectReason.CLOSED)

    def finish(self) -> None:
        """End the stream in the way the worker ended it."""
        rest = self._scan.finish()
        if self.machine.state is DISPATCHED:
            self._begin(rest)
        elif rest:
            self.reply.more(rest)
        self.on(e.Finished())

    def lost(self, loss: DisconnectReason) -> None:
        self._exchange = None
        if self._stream and self._scan.done:
            self.finish()
        else:
            self._broke_off(loss)

    def resolve_loss(self, worker: Worker, loss: DisconnectReason, part: SuspectGroup | None) -> None:
        """The cause of the broken answer is known."""
        if worker is self._lost:
            self._lost = None
            self.on(self.resume.lost(loss, self._scan.moved, part, begun=self.machine.begun))

    def expired(self, *, held: bool) -> None:
        """The deadline of its state has passed; `held`: the service has no worker."""
        if self.machine.state is not STREAMING:
            self.on(e.Expired(held=held))
        elif self._scan.done:
            self._abort()
            self.finish()
        else:
            self.on(e.Expired(held=held, abort=self.resume.abort_reason()))

    def cleared(self) -> None:
        """Its worker reports progress on it."""
        self._progress = max(self._progress, PROOF)
        if self.queued is not None and (self.queued.suspect or self.queued.died_at):
            self._report_progress(self.queued)

    def _place(self, placement: Placement) -> None:
        service, admission, queued, *_ = placement
        self.service, self.admission, self.queued = service, admission, queued
        self.resume = ResumeState(queued.prompt_tokens)
        self.measure_itl()
        tpot_s, trace = service.spec.classes[admission.request_class].tpot_s, b""
        if self.trace is None:
            traceparent = self.http.head.headers.get(b"traceparent", b"")
            self.trace, trace = self._context.tracing.begin(traceparent, service.spec.sample_ratio)
        self._upstream = UpstreamRequest(self.http.head, self.request_id, admission, tpot_s, trace)

    def _begin(self, first: bytes) -> None:
        again = self.machine.begun
        self.on(e.Began())
        if self.service is not None and self.queued is not None and self._worker is not None:
            self._worker.began(self.queued.id)
            self._context.dispatch(self.service)
        if again:
            self.forward(first)
        else:
            self._last = self._context.now()
            self._progress += self._scan.fresh
            if self.queued is not None and (self.queued.suspect or self.queued.died_at):
                self._report_progress(self.queued)
            self.reply.begin(self._status, self._fields, first)

    def _report_progress(self, queued: QueuedRequest) -> None:
        """Report new tokens of a request that is on trial, or watched since a death."""
        service = self.service
        if service is not None and service.dispatcher.got_on(queued, self._progress, self._context.now()):
            self._context.dispatch(service)

    def _broke_off(self, loss: DisconnectReason) -> None:
        self._lost = self._worker
        if self._worker is not None and self.service is not None:
            self._context.deaths.lost(self.service, self._worker, self, loss, self._scan.moved)

    def _enqueue(self, action: e.Enqueue, now: float) -> bool:
        if self.trace is not None:
            self.trace.waiting(now)
        if self.service is None or self.queued is None:
            return False
        if action.resume and self._worker is not None:
            self.resume.requeue(self.queued, self.machine.meter.output, self.service.pool, self._worker)
        worker = self.service.dispatcher.enqueue(self.queued, self.machine.limit, now, again=action.again)
        if worker is not None:
            self.on(e.Assigned(worker.name))
        return worker is None

    def _execute(self, action: e.Action, now: float) -> bool:
        """Execute an action; True if the queue changed and is dispatched afterwards."""
        match action:
            case e.Enqueue():
                return self._enqueue(action, now)
            case e.Send(name):
                self.send(name, now)
            case e.ReleaseSlot():
                if self.trace is not None:
                    self.trace.freed(now)
                if self.service is not None and self.queued is not None:
                    self._lost = None
                    self.service.dispatcher.release(self.queued, now, suspect=action.suspect)
                return True
            case e.Close():
                self.reply.end()
            case e.SendResponse():
                self.reply.whole(self._status, self._fields, b"".join(self._collected))
            case e.Settle():
                self._context.settle(self, action.record)
            case _:
                return self._execute_rare(action, now)
        return False

    def _execute_rare(self, action: e.Action, now: float) -> bool:
        """The actions that a request without disturbance does not need."""
        match action:
            case e.AbortUpstream():
                self._abort()
            case e.Fail(error):
                self._fail(error)
            case e.Dequeue() if self.service is not None and self.queued is not None:
                self.service.dispatcher.withdraw(self.queued)
            case e.Accuse(part) if self.queued is not None:
                self.queued.accuse(part, self._progress, now)
            case e.Resumed() if self.service is not None:
                self.service.series.resumed(action.reason, action.gap)
            case e.TryFallback(last) if (placement := self._context.fall_back(self, last)) is not None:
                self.diverted(placement)
            case e.SwitchDestination():
                if self._next is not None:
                    self._place(self._next)
                return True
        return False

    def _abort(self) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.abort()

    def _fail(self, error: RequestError) -> None:
        reservation, quota = self.reservation, self.quota_fields
        if reservation is not None:
            used = used_by_failed(error.code, reservation.use)
            quota = self._context.quotas.refunded(reservation, used, self._context.now())
        self.reply.fail(error, request_id_field(self.request_id) + quota)

    def _pressure(self, paused: bool) -> None:
        self._paused = paused
        if self._exchange is not None:
            self._exchange.pause(paused)

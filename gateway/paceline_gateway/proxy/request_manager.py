"""The desks and the calls at them: what the cluster and the workers report, who moves when, how it all ends.

Invariant: whatever frees or adds room ends in `moved`, so nobody waits beside an idle worker. `sweep` gives time its
say a few times a second: passed deadlines, silent workers, idle connections.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from paceline_core.auth import Signer
from paceline_core.clock import Clock
from paceline_core.errors import Code, RequestError
from paceline_core.kube import Endpoint
from paceline_core.registry.enums import FallbackReason, RequestClass, ShedReason
from paceline_core.telemetry import Metrics
from paceline_core.wire import LoadReport
from paceline_gateway.api.admission import reauthorize
from paceline_gateway.billing import Billing
from paceline_gateway.config import HttpLimits
from paceline_gateway.http.connection_pool import ConnectionPool
from paceline_gateway.proxy.active_request import ActiveRequest
from paceline_gateway.proxy.evacuation import Evacuator
from paceline_gateway.proxy.fallback import BlockedGroup, destination_loads, fall_back, fallback_reason
from paceline_gateway.proxy.worker_deaths import WorkerDeaths, isolated
from paceline_gateway.queueing.fair_queue import FairQueue
from paceline_gateway.queueing.shedding import ShedDecision
from paceline_gateway.quota.manager import QuotaManager
from paceline_gateway.quota.types import QuotaUsage, Reservation, charged_usage, made_since
from paceline_gateway.request import events as e
from paceline_gateway.request.prompt_size import PromptSize
from paceline_gateway.request.slo import evaluate_slos, phases
from paceline_gateway.request.types import HELD, RequestRecord, Timeouts
from paceline_gateway.routing.config_snapshot import NOTHING, ConfigSnapshot
from paceline_gateway.routing.fallback_chain import DestinationLoad, choose
from paceline_gateway.routing.model_lookup import Destination
from paceline_gateway.routing.policies import RoutingPolicy
from paceline_gateway.services.demand_report import ChangeNotifier
from paceline_gateway.services.service_state import ServiceState
from paceline_gateway.telemetry.access_log import AccessLog
from paceline_gateway.telemetry.metrics import QuotaSeries, TenantSeries
from paceline_gateway.telemetry.service_metrics import ServiceMetrics, forget
from paceline_gateway.telemetry.trace import FinishedRequest, RequestTracing, Trace

RETRY_S = 1.0


@dataclass(frozen=True, slots=True)
class GatewayDeps:
    """What the gateway works with. `follow` opens and closes load streams: a service and its workers now.

    `policy` makes a routing policy for one service.
    """

    limits: HttpLimits
    clock: Clock
    signer: Signer
    metrics: Metrics
    access: AccessLog
    follow: Callable[[str, tuple[Endpoint, ...]], None]
    policy: Callable[[], RoutingPolicy]
    quotas: QuotaManager
    name: str
    tracing: RequestTracing


class RequestManager:
    """Everything under way at one gateway."""

    def __init__(self, parts: GatewayDeps) -> None:
        limits = parts.limits
        self.limits = limits
        self.now = parts.clock.monotonic
        self.waits = Timeouts(limits.first_token_s, limits.stream_idle_timeout_s, limits.answer_s, limits.resume_s)
        self.pool = ConnectionPool(limits, parts.clock.monotonic)
        self._evacuation = Evacuator(self.pool, self.internal_token, limits.lookahead_s)
        self.deaths = WorkerDeaths(parts.name)
        self.bell = ChangeNotifier()
        self.picture: ConfigSnapshot = NOTHING
        self.pictures = 0
        """How many there were: names one without keeping it."""
        self.desks: dict[str, ServiceState] = {}
        self.tenants = TenantSeries(parts.metrics)
        self._quota_series = QuotaSeries(parts.metrics)
        self.quotas = parts.quotas
        self.tracing = parts.tracing
        self.billing = Billing(parts.name, parts.clock, parts.metrics, self.tenants)
        self._parts = parts
        self._endpoints: dict[str, tuple[Endpoint, ...]] = {}
        self._calls: dict[int, ActiveRequest] = {}
        self._chained: dict[int, ActiveRequest] = {}
        self._moving: set[str] = set()
        self._again: set[str] = set()
        self._held: set[str] = set()
        self._tokens: dict[str, str] = {}

    @property
    def open(self) -> int:
        """Calls under way."""
        return len(self._calls)

    @property
    def reservations(self) -> Iterator[Reservation]:
        """What open calls have set aside."""
        return (call.reservation for call in self._calls.values() if call.reservation is not None)

    @property
    def calls(self) -> Iterable[ActiveRequest]:
        """Those under way."""
        return self._calls.values()

    def internal_token(self, service: str) -> str:
        """A token for this service's workers, signed or looked for at most once between two sweeps."""
        token = self._tokens.get(service)
        if token is None:
            token = self._tokens[service] = self._parts.signer.token(service, self._parts.clock.utc())
        return token

    def open_call(self, call: ActiveRequest) -> None:
        """A call that is known from now on, found by its ticket."""
        if call.ticket is not None:
            self._calls[call.ticket.id] = call
            if call.admission is not None and call.admission.onward:
                self._chained[call.ticket.id] = call

    def arrived(self, call: ActiveRequest, reservation: Reservation) -> None:
        """A call has its reservation."""
        call.reservation = reservation
        if call.ticket is not None and call.desk is not None:
            call.desk.arrived(call.ticket.request_class, call.ticket.prompt_tokens, call.ticket.tenant)

    def lines(self) -> dict[str, FairQueue]:
        """Everybody who waits, by service and class."""
        return {
            f"{key} {name}": line for key, desk in self.desks.items() for name, line in desk.dispatcher.lines.items()
        }

    def choose(self, chain: Sequence[Destination], name: RequestClass, size: int, prompt: PromptSize) -> int:
        """Which destination takes a request. What goes elsewhere for want of room is demand for the first one too."""
        now = self.now()
        states = destination_loads(chain[:1], self.desks, name, size, prompt, now)
        if states[0][1] is DestinationLoad.OPEN:
            return 0
        states += destination_loads(chain[1:], self.desks, name, size, prompt, now)
        place = choose(states)
        if place:
            self.desks[chain[0].service.key].diverted(name, prompt, FallbackReason(states[0][1].name.lower()))
        return place

    def divert(self, call: ActiveRequest, reason: FallbackReason) -> bool:
        """Send a request that waits on to the next destination of its route that can take it, if there is one."""
        return fall_back(call, reason, self.desks, self.now())

    def seek(self, call: ActiveRequest, *, last: bool) -> None:
        """The same of one that workers have failed, unless another worker is left and it may be asked again."""
        desk, ticket = call.desk, call.ticket
        if desk is None or ticket is None:
            return
        left = any(worker.name not in ticket.avoid for worker in desk.fleet.eligible(self.now()))
        if last or not left:
            self.divert(call, FallbackReason.ERROR)

    def displaced(self, shed: ShedDecision) -> None:
        """One who waits must go for another."""
        self._turn_out(self._calls[shed.ticket.id], FallbackReason.QUEUE_FULL, shed.error)

    def moved(self, desk: ServiceState) -> None:
        """Hand waiting requests to workers with room. What moves on the way is looked at again, not nested."""
        key = desk.key
        if not desk.dispatcher.waiting:
            self._held.discard(key)
            return
        if key in self._moving:
            self._again.add(key)
            return
        self._moving.add(key)
        try:
            self._assign(desk, key)
        finally:
            self._moving.discard(key)
        self._watch_held(desk)

    def refunded(self, call: ActiveRequest, used: QuotaUsage) -> bytes:
        """Header lines that tell where its tenant stands, once of its reservation so much is charged."""
        return b"" if call.reservation is None else self.quotas.refunded(call.reservation, used, self.now())

    def ended(self, call: ActiveRequest, record: RequestRecord) -> None:
        """A call is over: count it everywhere."""
        self.tenants.ended(record)
        if call.trace is not None:
            self._trace(call, call.trace, record)
        trace_id, at = (0, 0.0) if call.trace is None else (call.trace.trace_id, self._parts.clock.utc().timestamp())
        use = (
            QuotaUsage()
            if call.reservation is None
            else charged_usage(record, call.reservation.use, self._made(call, record))
        )
        self._parts.access.ended(record, call.request_id, call.request.head.path, trace_id, use.input_tokens)
        if call.ticket is None or call.desk is None:
            return
        desk, name = call.desk, call.ticket.request_class
        if record.code is Code.REQUEST_ISOLATED:
            isolated(desk, name, record, call.request_id, self._parts.clock.utc())
            self.bell.ring()
        verdicts = evaluate_slos(record, desk.service.classes[name].targets)
        self._calls.pop(call.ticket.id, None)
        self._chained.pop(call.ticket.id, None)
        self.billing.release(call.ticket.id)
        if call.waiter is not None:
            self.quotas.abandon(call.waiter)
        if call.reservation is not None:
            self.quotas.settle(call.reservation, use, self.now())
            desk.settled(call.ticket, use, record.meter.cached)
            self.billing.charged(record, use, desk, name, self.picture, call.earlier)
            if call.admission is not None:
                desk.ended(record, verdicts, name, call.admission.prompt, call.admission.choices)
        desk.series.classes[name].ended(record, verdicts, trace_id, at)
        desk.series.ended(record, phases(record))

    def _made(self, call: ActiveRequest, record: RequestRecord) -> int:
        """Output tokens of an answer that was given up before it told any."""
        admission, reservation = call.admission, call.reservation
        if call.desk is None or admission is None or reservation is None or record.sent is None:
            return 0
        if admission.stream or not reservation.use.output_tokens:
            return 0
        worker = call.desk.fleet.get(record.worker)
        step_s, most = 0.0 if worker is None else worker.step_s, admission.max_tokens * admission.choices
        made = made_since(record.ended - record.sent, step_s, admission.choices)
        return reservation.use.output_tokens if made is None else min(made, most)

    def _trace(self, call: ActiveRequest, trace: Trace, record: RequestRecord) -> None:
        model = "" if call.desk is None else call.desk.service.model.served_name
        self.tracing.record(
            FinishedRequest(trace, record, call.request_id.decode("latin-1"), call.request.head.path, model)
        )

    def on_picture(self, picture: ConfigSnapshot) -> None:
        """Objects changed: open and close desks, follow changed promises."""
        self.picture = picture
        self.pictures += 1
        for key in self.desks.keys() - picture.services.keys():
            self._close(key)
        for key, service in picture.services.items():
            desk = self.desks.get(key)
            if desk is None:
                series = ServiceMetrics(self._parts.metrics, service)
                self.desks[key] = desk = ServiceState(service, series, self.limits, self._parts.policy())
                self.on_workers(key, self._endpoints.get(key, ()))
            elif desk.service != service:
                if desk.service.classes != service.classes:
                    forget(self._parts.metrics, service.namespace, service.name, promises_only=True)
                    desk.series = ServiceMetrics(self._parts.metrics, service)
                    for call in self._calls.values():
                        call.count_gaps()
                desk.service = service
        for call in [call for call in self._calls.values() if call.life.state in HELD]:
            self._judge_again(call)

    def on_workers(self, service: str, endpoints: tuple[Endpoint, ...]) -> None:
        """A service's workers changed."""
        if endpoints:
            self._endpoints[service] = endpoints
        else:
            self._endpoints.pop(service, None)
        desk = self.desks.get(service)
        if desk is not None:
            self._parts.follow(service, endpoints)
            desk.fleet.update(endpoints)
            self.moved(desk)

    def on_report(self, service: str, worker: str, report: LoadReport) -> None:
        """A worker said how it is."""
        desk = self.desks.get(service)
        if desk is not None:
            known = desk.fleet.get(worker)
            anew = known is not None and not known.connected
            desk.fleet.says(worker, report, self.now())
            if anew and known is not None:
                self.deaths.heard(known)
            for call in self.deaths.cleared(report.cleared, self._calls):
                call.cleared()
            self.moved(desk)

    def on_cut(self, service: str, worker: str, *, refused: bool = False) -> None:
        """A worker's load stream broke; `refused`: nobody listens there."""
        desk = self.desks.get(service)
        if desk is not None:
            desk.fleet.cut(worker)
            if refused and (known := desk.fleet.get(worker)) is not None:
                self.deaths.refused(desk, known)
            self._watch_held(desk)

    def sweep(self) -> None:
        """Give time its say."""
        now = self.now()
        self._tokens.clear()
        for call in [call for call in self._calls.values() if call.life.deadline <= now]:
            self._expire(call, now)
        self._look_around(now)
        for desk in self.desks.values():
            self.moved(desk)
        self._evacuation.sweep(self.desks.values(), self._calls.values(), now)
        self.quotas.tick(now)
        self.billing.roll()
        self.pool.sweep()
        self._parts.access.flush()

    def show(self) -> None:
        """Bring the gauges up to date, for a scrape."""
        for desk in self.desks.values():
            desk.show(self.now())
        self._parts.metrics.gauge("paceline_demand_subscribers").set(self.bell.readers)
        self._quota_series.show(self.quotas)
        self.billing.show(self.picture)

    def cut(self) -> None:
        """End every open call with an error: the grace period is over."""
        error = RequestError(
            Code.DRAINING, "The gateway shut down before the answer was complete.", retry_after=RETRY_S
        )
        for call in list(self._calls.values()):
            call.on(e.Refused(error))
        self._parts.access.flush()

    def _assign(self, desk: ServiceState, key: str) -> None:
        while True:
            self._again.discard(key)
            for ticket, worker in desk.dispatcher.assign(self.now()):
                self._calls[ticket.id].assigned(worker)
            for ticket in desk.dispatcher.late:
                self._expire(self._calls[ticket.id], self.now())
            if key not in self._again:
                return

    def _turn_out(self, call: ActiveRequest, reason: FallbackReason, error: RequestError) -> None:
        """It can wait here no longer."""
        if not (call.life.waiting and self.divert(call, reason)):
            call.on(e.Refused(error))

    def _look_around(self, now: float) -> None:
        """Those who wait in vain go on to the next destination of their route."""
        stuck: set[BlockedGroup] = set()
        up: dict[ServiceState, bool] = {}
        for call in list(self._chained.values()):
            found = fallback_reason(call, up, now)
            if found is not None and found not in stuck and not self.divert(call, found.reason):
                stuck.add(found)

    def _expire(self, call: ActiveRequest, now: float) -> None:
        desk, ticket = call.desk, call.ticket
        if desk is not None and ticket is not None and call.life.waiting:
            desk.series.classes[ticket.request_class].shed[ShedReason.DEADLINE_EXCEEDED].inc()
        call.expired(held=desk is not None and desk.dispatcher.held(now) > 0)

    def _watch_held(self, desk: ServiceState) -> None:
        key, held = desk.key, desk.dispatcher.held(self.now()) > 0
        if held and key not in self._held:
            self._held.add(key)
            self.bell.ring()
        elif not held:
            self._held.discard(key)

    def _judge_again(self, call: ActiveRequest) -> None:
        """Who waits must still have the right to."""
        if call.ticket is None or call.desk is None:
            return
        try:
            reauthorize(call.request.head.headers, call.ticket.request_class, call.desk.key, self.picture)
        except RequestError as error:
            call.on(e.Refused(error))

    def _close(self, key: str) -> None:
        desk = self.desks.pop(key)
        self._held.discard(key)
        self._parts.follow(key, ())
        gone = RequestError(Code.NO_CAPACITY, "The model's service was deleted.", retry_after=RETRY_S)
        for call in [call for call in self._calls.values() if call.desk is desk and call.life.state in HELD]:
            self._turn_out(call, FallbackReason.UNAVAILABLE, gone)
        forget(self._parts.metrics, desk.service.namespace, desk.service.name)
        self.billing.forget(key)
        self._evacuation.closed(key)

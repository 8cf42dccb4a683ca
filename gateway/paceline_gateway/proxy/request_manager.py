"""The open requests of one gateway: opens, expires and aborts them, moves them to fallbacks, follows the services.

`sweep` runs a few times a second: passed deadlines, requests that cannot be served here, draining workers, idle
connections. A request that falls back keeps its reservation, because limits belong to the tenant and not to a service.
It is settled once, by the counts of the worker that served it. The service that it leaves counts it as demand, gets no
charge for it, and keeps no place for it. Known hole: the reservation was estimated, and priced, for the first
destination.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from paceline_core.auth import Signer
from paceline_core.clock import Clock
from paceline_core.errors import Code, RequestError
from paceline_core.registry.enums import FallbackReason, RequestClass, ShedReason
from paceline_core.telemetry import Metrics
from paceline_gateway.api.admission import AdmittedRequest, readmit, reauthorize
from paceline_gateway.config import HttpLimits
from paceline_gateway.http.connection_pool import ConnectionPool
from paceline_gateway.proxy.active_request import ActiveRequest, RequestContext
from paceline_gateway.proxy.evacuation import Evacuator
from paceline_gateway.proxy.settlement import Billing, Settlement
from paceline_gateway.queueing.queued_request import QueuedRequest
from paceline_gateway.queueing.shedding import ShedDecision
from paceline_gateway.quota.manager import QuotaManager
from paceline_gateway.quota.types import Reservation
from paceline_gateway.request import events as e
from paceline_gateway.request.prompt_size import WITHOUT_OUTPUT
from paceline_gateway.request.types import HELD, RequestRecord, Timeouts
from paceline_gateway.routing.model_lookup import DestinationLoad, next_destination, share_s
from paceline_gateway.routing.worker import Worker
from paceline_gateway.services.registry import RETRY_S, ServiceRegistry
from paceline_gateway.services.service_state import Placement, ServiceState
from paceline_gateway.telemetry.access_log import AccessLog
from paceline_gateway.telemetry.metrics import QuotaSeries, TenantSeries
from paceline_gateway.telemetry.trace import RequestTracing

_LOAD = {
    FallbackReason.OVERLOADED: DestinationLoad.OVERLOADED,
    FallbackReason.QUEUE_FULL: DestinationLoad.QUEUE_FULL,
    FallbackReason.TIMEOUT: DestinationLoad.QUEUE_FULL,
    FallbackReason.UNAVAILABLE: DestinationLoad.UNAVAILABLE,
    FallbackReason.ERROR: DestinationLoad.UNAVAILABLE,
}
"""How much load the service has that a request leaves for this reason."""


@dataclass(frozen=True, slots=True)
class BlockedGroup:
    """Requests that wait for the same reason and have the same fallbacks: if one cannot leave, none can."""

    service: str
    request_class: RequestClass
    reason: FallbackReason
    fallbacks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GatewayDeps:
    """The parts that the gateway's requests share; `name` is the gateway's."""

    limits: HttpLimits
    clock: Clock
    signer: Signer
    metrics: Metrics
    access: AccessLog
    quotas: QuotaManager
    name: str
    tracing: RequestTracing


class RequestManager:
    """The open requests of one gateway. Listens to the services of its registry."""

    def __init__(self, registry: ServiceRegistry, deps: GatewayDeps) -> None:
        limits, self.now = deps.limits, deps.clock.monotonic
        self.registry = registry
        self.pool = ConnectionPool(limits, self.now)
        self.tenants = TenantSeries(deps.metrics)
        self.quotas = deps.quotas
        self.billing = Billing(deps.name, deps.clock, deps.metrics, self.tenants)
        self._quota_series = QuotaSeries(deps.metrics)
        self._evacuation = Evacuator(self.pool, self.internal_token, limits.lookahead_s)
        self._deps = deps
        self._open: dict[int, ActiveRequest] = {}
        self._with_fallbacks: dict[int, ActiveRequest] = {}
        self._tokens: dict[str, str] = {}
        self._settlement = Settlement(
            registry, self.quotas, self.billing, self.tenants, deps.access, deps.tracing, deps.clock
        )
        self.context = RequestContext(
            limits=limits,
            timeouts=Timeouts(limits.first_token_s, limits.stream_idle_timeout_s, limits.answer_s, limits.resume_s),
            pool=self.pool,
            tracing=deps.tracing,
            deaths=registry.deaths,
            quotas=self.quotas,
            now=self.now,
            internal_token=self.internal_token,
            dispatch=registry.dispatch,
            fall_back=self._after_failure,
            settle=self._close,
        )
        registry.listener = self

    @property
    def open(self) -> int:
        return len(self._open)

    @property
    def requests(self) -> Iterable[ActiveRequest]:
        return self._open.values()

    @property
    def reservations(self) -> Iterator[Reservation]:
        """Reservations of open requests."""
        return (request.reservation for request in self._open.values() if request.reservation is not None)

    def internal_token(self, service: str) -> str:
        """A token for this service's workers; signed, or read, at most once between two sweeps."""
        token = self._tokens.get(service)
        if token is None:
            token = self._tokens[service] = self._deps.signer.token(service, self._deps.clock.utc())
        return token

    def add(self, request: ActiveRequest, placement: Placement) -> None:
        """Open an admitted request."""
        request.admitted(placement)
        self._open[placement.queued.id] = request
        if placement.admission.fallbacks:
            self._with_fallbacks[placement.queued.id] = request

    def fall_back(self, request: ActiveRequest, reason: FallbackReason) -> bool:
        """Move a waiting request to the next destination of its route that can take it, if there is one."""
        placement = self._left(request, reason)
        if placement is None:
            return False
        request.diverted(placement)
        return True

    def displace(self, shed: ShedDecision) -> None:
        """End a waiting request to make room for another, or move it to a fallback."""
        self._remove(self._open[shed.queued.id], FallbackReason.QUEUE_FULL, shed.error)

    def sweep(self) -> None:
        """Do everything that is due at this time."""
        now = self.now()
        self._tokens.clear()
        for request in [request for request in self._open.values() if request.machine.deadline <= now]:
            self._expire(request, now)
        blocked: set[BlockedGroup] = set()
        up: dict[ServiceState, bool] = {}
        for request in list(self._with_fallbacks.values()):
            found = fallback_reason(request, up, now)
            if found is not None and found not in blocked and not self.fall_back(request, found.reason):
                blocked.add(found)
        services = self.registry.services.values()
        for service in services:
            service.observe(now)
            self.registry.dispatch(service)
        self._evacuation.sweep(services, self._open.values(), now)
        self.quotas.tick(now)
        self.billing.ledger.roll(self._deps.clock.utc())
        self.pool.sweep()
        self._deps.access.flush()

    def abort(self) -> None:
        """End every open request with an error: the grace period is over."""
        error = RequestError(
            Code.DRAINING, "The gateway shut down before the answer was complete.", retry_after=RETRY_S
        )
        for request in list(self._open.values()):
            request.on(e.Refused(error))
        self._deps.access.flush()

    def show(self) -> None:
        self.registry.show(self.now())
        self._quota_series.show(self.quotas)
        self.billing.show(self.registry.snapshot)

    def on_assigned(self, queued: QueuedRequest, worker: Worker) -> None:
        self._open[queued.id].on(e.Assigned(worker.name))

    def on_expired(self, queued: QueuedRequest) -> None:
        self._expire(self._open[queued.id], self.now())

    def on_cleared(self, suspects: Iterable[str]) -> None:
        for request in self.registry.deaths.cleared(suspects, self._open):
            request.cleared()

    def on_classes_changed(self) -> None:
        for request in self._open.values():
            request.measure_itl()

    def on_deleted(self, service: ServiceState, error: RequestError) -> None:
        """A service is gone: requests that wait for it leave."""
        waiting = [r for r in self._open.values() if r.service is service and r.machine.state in HELD]
        for request in waiting:
            self._remove(request, FallbackReason.UNAVAILABLE, error)
        self.billing.series.forget(service.key)
        self._evacuation.closed(service.key)

    def on_config_changed(self) -> None:
        """Keys, tenants, routes or services changed: check that waiting requests are still allowed."""
        for request in [request for request in self._open.values() if request.machine.state in HELD]:
            if request.queued is None or request.service is None:
                continue
            name, key = request.queued.request_class, request.service.key
            try:
                reauthorize(request.http.head.headers, name, key, self.registry.snapshot)
            except RequestError as error:
                request.on(e.Refused(error))

    def _after_failure(self, request: ActiveRequest, last: bool) -> Placement | None:
        """The fallback of a request that workers failed; None while it has another worker and another attempt here."""
        service, queued = request.service, request.queued
        if service is None or queued is None:
            return None
        if last or not any(worker.name not in queued.avoid for worker in service.pool.eligible(self.now())):
            return self._left(request, FallbackReason.ERROR)
        return None

    def _left(self, request: ActiveRequest, reason: FallbackReason) -> Placement | None:
        """The placement of a request that leaves its service; counted at both services."""
        placement = find_fallback(request, reason, self.registry, self.now())
        if placement is None or request.service is None or request.queued is None:
            return None
        request.service.went_on(request.queued, reason)
        queued = placement.queued
        placement.service.arrived(queued.request_class, queued.prompt_tokens, queued.tenant)
        return placement

    def _remove(self, request: ActiveRequest, reason: FallbackReason, error: RequestError) -> None:
        """A request cannot wait at its service any longer."""
        if not (request.machine.waiting and self.fall_back(request, reason)):
            request.on(e.Refused(error))

    def _expire(self, request: ActiveRequest, now: float) -> None:
        service, queued = request.service, request.queued
        if service is not None and queued is not None and request.machine.waiting:
            service.series.classes[queued.request_class].shed[ShedReason.DEADLINE_EXCEEDED].inc()
        request.expired(held=service is not None and service.dispatcher.held(now) > 0)

    def _close(self, request: ActiveRequest, record: RequestRecord) -> None:
        if request.queued is not None:
            self._open.pop(request.queued.id, None)
            self._with_fallbacks.pop(request.queued.id, None)
        self._settlement.settle(request, record)


def find_fallback(
    request: ActiveRequest, reason: FallbackReason, registry: ServiceRegistry, now: float
) -> Placement | None:
    """The first later destination that can take the request."""
    admission, queued = request.admission, request.queued
    if request.service is None or queued is None or admission is None:
        return None
    if not admission.fallbacks or request.machine.begun:
        return None
    loads = registry.loads(admission.fallbacks, queued.request_class, queued.size, admission.prompt)
    while (place := next_destination(loads, _LOAD[reason])) is not None:
        service = registry.services[admission.fallbacks[place].service.key]
        placement = _placement(service, request, admission, queued, place)
        if placement is not None and service.takes(placement.queued, now):
            return placement
        loads[place] = (loads[place][0], DestinationLoad.QUEUE_FULL)
    return None


def fallback_reason(request: ActiveRequest, up: dict[ServiceState, bool], now: float) -> BlockedGroup | None:
    """Why a waiting request should leave: its service has no eligible worker, or it has waited its share of the limit.

    `up` caches, for one pass over many requests, which services have an eligible worker.
    """
    service, queued, admission = request.service, request.queued, request.admission
    if service is None or queued is None or admission is None or not admission.fallbacks:
        return None
    if not request.machine.waiting or request.machine.begun:
        return None
    hold_s = service.spec.classes[queued.request_class].hold_timeout_s
    if service not in up:
        up[service] = bool(service.pool.eligible(now))
    if not up[service]:
        reason = FallbackReason.UNAVAILABLE
    elif now - queued.joined >= share_s(hold_s, len(admission.fallbacks)):
        reason = FallbackReason.TIMEOUT
    else:
        return None
    fallbacks = tuple(destination.service.key for destination in admission.fallbacks)
    return BlockedGroup(service.key, queued.request_class, reason, fallbacks)


def _placement(
    service: ServiceState, request: ActiveRequest, admission: AdmittedRequest, queued: QueuedRequest, place: int
) -> Placement | None:
    """The request under this destination's terms; None if it asks for more than they allow."""
    head = request.http.head
    if head.tenant is None:
        return None
    try:
        admitted = readmit(request.http.body, head.tenant, admission, place, path=head.path)
    except RequestError:
        return None
    writes = head.path not in WITHOUT_OUTPUT
    return service.place(queued.id, head.tenant, admitted, request.machine.deadline, writes=writes)

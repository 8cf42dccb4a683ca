"""Settles a request that ended, in one place: charged, judged against its SLOs, counted, traced and logged.

Every request is settled exactly once (`request.machine`), whatever ended it. A request that ended before it joined a
queue is counted by no service; one that ended before its reservation is charged nothing. `Billing` reserves part of a
monthly budget before a request and charges after it. It never waits: no request depends on the API server.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from paceline_core.clock import Clock, rfc3339
from paceline_core.errors import Code, RequestError
from paceline_core.kube import Listed, Upserted
from paceline_core.objects.resolved import ResolvedService, ResolvedTenant
from paceline_core.objects.tenant import Tenant
from paceline_core.registry import Outcome, RequestClass
from paceline_core.telemetry import Metrics, get_logger
from paceline_core.wire import Isolated
from paceline_gateway.api.admission import AdmittedRequest
from paceline_gateway.proxy.active_request import ActiveRequest
from paceline_gateway.queueing.queued_request import OUTPUT_WEIGHT
from paceline_gateway.quota.manager import QuotaManager
from paceline_gateway.quota.types import QuotaUsage
from paceline_gateway.request.slo import evaluate_slos, phases
from paceline_gateway.request.types import RequestRecord
from paceline_gateway.routing.config_snapshot import NOTHING, ConfigSnapshot
from paceline_gateway.routing.worker import Worker
from paceline_gateway.services.registry import ServiceRegistry
from paceline_gateway.services.service_state import ServiceState
from paceline_gateway.telemetry.access_log import AccessLog
from paceline_gateway.telemetry.metrics import TenantSeries, UsageSeries
from paceline_gateway.telemetry.trace import FinishedRequest, RequestTracing
from paceline_gateway.usage import cost
from paceline_gateway.usage.cost import BudgetExposure, Part, PricedReplica, cost_of
from paceline_gateway.usage.ledger import UsageLedger
from paceline_gateway.usage.types import StoredUsage, UsageAmount, read_usage
from paceline_planner.service_devices import pool_price

_log = get_logger(__name__)
_OK, _CLIENT_ERROR, _CANCELLED = Outcome.OK, Outcome.CLIENT_ERROR, Outcome.CANCELLED
_NOT_SERVED = frozenset({Outcome.SHED, Outcome.UPSTREAM_ERROR, Outcome.TIMEOUT})


class Billing:
    """The billing of one gateway. `name` is unique among gateways and survives a restart."""

    def __init__(self, name: str, clock: Clock, metrics: Metrics, tenants: TenantSeries) -> None:
        self.ledger = UsageLedger(name, clock.utc())
        self.exposure = BudgetExposure()
        self._clock = clock
        self.series = UsageSeries(metrics, tenants)
        self._prices: dict[tuple[str, str], Decimal | None] = {}
        self._priced = NOTHING

    def reserve(  # noqa: PLR0913, PLR0917 - all inputs of a reservation
        self,
        request: int,
        tenant: ResolvedTenant,
        service: ServiceState,
        need: QuotaUsage,
        most: QuotaUsage,
        snapshot: ConfigSnapshot,
        gateways: int,
    ) -> RequestError | None:
        """Reserve what a request may use of its tenant's monthly budget; the error if too little is left."""
        if not tenant.budgeted and tenant.input_tokens_per_minute is tenant.output_tokens_per_minute is None:
            return None
        replica = None if tenant.monthly_dollars is None else self._any_replica(service, snapshot)
        expected, at_most = (_spent([(replica, use.output_tokens)], use, 0) for use in (need, most))
        return cost.reserve(self.ledger, self.exposure, request, tenant, expected, at_most, gateways)

    def exhausted(self, tenant: ResolvedTenant, least: QuotaUsage) -> RequestError | None:
        """The error if even so small a request exceeds the tenant's monthly budget; None if it fits."""
        return self.ledger.exhausted(tenant, UsageAmount(least.requests, least.input_tokens, least.output_tokens))

    def settle(  # noqa: PLR0913, PLR0917 - all inputs of a price
        self,
        request: int,
        record: RequestRecord,
        use: QuotaUsage,
        service: ServiceState,
        name: RequestClass,
        snapshot: ConfigSnapshot,
        workers: Sequence[tuple[Worker | None, int]],
    ) -> None:
        """Charge what a request has used, and release its reservation.

        `workers` are those that worked on it, each with the number of output tokens at its end.
        """
        spent = UsageAmount()
        if use.requests:
            parts: list[Part] = []
            for worker, output in workers:  # an unknown worker has the price of any worker
                replica = None if worker is None else self._replica(service.spec, worker, snapshot)
                parts.append((replica or self._any_replica(service, snapshot), min(output, use.output_tokens)))
            spent = _spent(parts, use, record.meter.cached)
        self.exposure.release(request)
        self.ledger.release(request)
        if use.requests:
            self.ledger.charged(record.tenant, spent, self._clock.monotonic())
            self.series.charged(service.key, name, record.tenant, spent)

    def on_tenants(self, event: Listed[Tenant] | Upserted[Tenant]) -> None:
        """Apply the API server's state of tenants."""
        match event:
            case Listed(tenants):
                self.ledger.keep({tenant.name: tenant for tenant in tenants})
            case Upserted(tenant):
                tenants = (tenant,)
        for tenant in tenants:
            stored = StoredUsage(tenant.metadata.resource_version, read_usage(tenant.status.usage))
            self.ledger.on_status(tenant.name, stored)

    def show(self, snapshot: ConfigSnapshot) -> None:
        oldest = max((age for _, age in self.ledger.holds(self._clock.monotonic())), default=0.0)
        self.series.show(snapshot.tenants.values(), self.ledger.used, oldest)

    def _any_replica(self, service: ServiceState, snapshot: ConfigSnapshot) -> PricedReplica | None:
        """The replica on which a request would run now; None if unknown."""
        worker = next((worker for worker in service.pool if worker.report is not None), None)
        return None if worker is None else self._replica(service.spec, worker, snapshot)

    def _replica(self, service: ResolvedService, worker: Worker, snapshot: ConfigSnapshot) -> PricedReplica | None:
        """None while the worker has not reported its speed; its price is looked up once for each snapshot."""
        if snapshot is not self._priced:
            self._priced, self._prices = snapshot, {}
        name = worker.endpoint.pool
        key = (service.key, name)
        if key not in self._prices:
            pool = next((pool for pool in service.pools if pool.name == name), None)
            self._prices[key] = None if pool is None else pool_price(service, pool, snapshot.accelerators.get)
        report, price = worker.report, self._prices[key]
        if report is None or price is None:
            return None
        return PricedReplica(report.step_time, report.slots, service.engine.step_tokens, price)


def _spent(parts: Sequence[Part], use: QuotaUsage, cached: int) -> UsageAmount:
    """The usage with its cost there; zero where that is unknown."""
    dollars = cost_of(parts, prompt=use.input_tokens, cached=cached)
    return UsageAmount(use.requests, use.input_tokens, use.output_tokens, dollars)


@dataclass(frozen=True, slots=True)
class Settlement:
    """Settles requests."""

    registry: ServiceRegistry
    quotas: QuotaManager
    billing: Billing
    tenants: TenantSeries
    access: AccessLog
    tracing: RequestTracing
    clock: Clock

    def settle(self, request: ActiveRequest, record: RequestRecord) -> None:
        trace, service, queued, admission = request.trace, request.service, request.queued, request.admission
        use, path, trace_id, at = self._charge(request, record), request.http.head.path, 0, 0.0
        self.tenants.ended(record)
        if trace is not None:
            trace_id, at = trace.trace_id, self.clock.utc().timestamp()
            model = "" if service is None else service.spec.model.served_name
            self.tracing.record(FinishedRequest(trace, record, request.request_id.decode("latin-1"), path, model))
        self.access.ended(record, request.request_id, path, trace_id, use.input_tokens)
        if queued is None or service is None:
            return
        name, spent = queued.request_class, phases(record)
        verdicts = evaluate_slos(record, service.spec.classes[name].targets)
        if record.code is Code.REQUEST_ISOLATED:
            self._report_isolated(service, request, record)
        if request.pending is not None:
            request.pending.gone = True
        if request.reservation is not None and admission is not None:
            self.quotas.settle(request.reservation, use, self.clock.monotonic())
            service.ended(record, verdicts, name, admission.prompt, admission.choices)
            uncached = max(use.input_tokens - record.meter.cached, 0)
            service.dispatcher.queues[name].settle(queued, uncached + OUTPUT_WEIGHT * use.output_tokens)
        service.series.ended(record, name, verdicts, spent, trace_id, at)
        if admission is not None and admission.degraded:
            self._count_degraded(admission, service)

    def _count_degraded(self, admission: AdmittedRequest, service: ServiceState) -> None:
        """Count how an answer was less than asked for, at the service whose pressure was the reason."""
        reason = admission.destination.instead_of or service.spec
        series = self.registry.services.get(reason.key, service).series
        for kind in admission.degraded:
            series.classes[admission.request_class].degraded[kind].inc()

    def _charge(self, request: ActiveRequest, record: RequestRecord) -> QuotaUsage:
        """Bill a request for its use; returns that use."""
        service, queued, use = request.service, request.queued, QuotaUsage()
        if service is None or queued is None:
            return use
        worker = service.pool.workers.get(record.worker)
        if request.reservation is not None:
            use = charged_usage(record, request.reservation.use, _made(request, record, worker))
        workers = [*request.resume.earlier, (worker, use.output_tokens)]
        self.billing.settle(queued.id, record, use, service, queued.request_class, self.registry.snapshot, workers)
        return use

    def _report_isolated(self, service: ServiceState, request: ActiveRequest, record: RequestRecord) -> None:
        """Workers died of this request: a log line, a metric, and with the demand report an Event."""
        if request.queued is None:
            return
        request_id, at = request.request_id.decode("latin-1"), rfc3339(self.clock.utc())
        entry = Isolated(tenant=record.tenant, request=request_id, worker=record.worker, at=at)
        service.isolate(request.queued.request_class, entry)
        extra = {"service": service.key, "tenant": entry.tenant, "request_id": request_id, "worker": entry.worker}
        _log.warning("a request is isolated: two workers died of it", extra=extra)
        self.registry.changes.notify()


def _made(request: ActiveRequest, record: RequestRecord, worker: Worker | None) -> int:
    """Estimated output tokens of an answer that did not stream and was cancelled before it reported any."""
    admission, reservation = request.admission, request.reservation
    if admission is None or admission.stream or record.sent is None:
        return 0
    if reservation is None or not reservation.use.output_tokens:
        return 0
    step_s, most = 0.0 if worker is None else worker.step_s, admission.max_tokens * admission.choices
    made = made_since(record.ended - record.sent, step_s, admission.choices)
    return reservation.use.output_tokens if made is None else min(made, most)


def made_since(seconds: float, step_s: float, choices: int) -> int | None:
    """Output tokens that a worker made for a request in this time, one step for each; None if unknown."""
    return int(max(seconds, 0.0) / step_s) * choices if step_s > 0 else None


def charged_usage(record: RequestRecord, reserved: QuotaUsage, made: int = 0) -> QuotaUsage:
    """What a request has used: nothing if it never reached a worker or no worker could answer it.

    Without a count of prompt tokens the estimate counts, and likewise for the output of an answer that does not stream.
    Such an answer reports its tokens only at its end: if its client cancelled it, `made` is an estimate. A request that
    workers died of pays for its prompt.
    """
    if record.code is Code.REQUEST_ISOLATED:
        return QuotaUsage(1, record.meter.prompt or reserved.input_tokens, record.meter.output)
    if record.sent is None or (record.outcome in _NOT_SERVED and not record.meter.output):
        return QuotaUsage()
    if record.outcome is _CLIENT_ERROR and not record.meter.output:
        return QuotaUsage(requests=1)
    meter, output = record.meter, record.meter.output
    if not (output or meter.counted or (record.terms is not None and record.terms.stream)):
        output = {_CANCELLED: made, _OK: reserved.output_tokens}.get(record.outcome, 0)
    return QuotaUsage(1, meter.prompt or reserved.input_tokens, output)

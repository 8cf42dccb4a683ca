"""Settles a request that ended, in one place: charged, judged against its SLOs, counted, traced and logged.

Every request comes here exactly once (`request.machine`), whatever ended it. A request that ended before it was let
into a queue has no service to count it; one that ended before its reservation is charged nothing.
"""

from dataclasses import dataclass

from paceline_core.clock import Clock, rfc3339
from paceline_core.errors import Code
from paceline_core.telemetry import get_logger
from paceline_core.wire import Isolated
from paceline_gateway.billing import Billing
from paceline_gateway.proxy.active_request import ActiveRequest
from paceline_gateway.quota.manager import QuotaManager
from paceline_gateway.quota.types import QuotaUsage, charged_usage, made_since
from paceline_gateway.request.slo import evaluate_slos, phases
from paceline_gateway.request.types import RequestRecord
from paceline_gateway.routing.worker import Worker
from paceline_gateway.services.registry import ServiceRegistry
from paceline_gateway.services.service_state import ServiceState
from paceline_gateway.telemetry.access_log import AccessLog
from paceline_gateway.telemetry.metrics import TenantSeries
from paceline_gateway.telemetry.trace import FinishedRequest, RequestTracing

_log = get_logger(__name__)


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
        trace, service, ticket, reservation = request.trace, request.service, request.ticket, request.reservation
        worker, use = None if service is None else service.fleet.get(record.worker), QuotaUsage()
        if reservation is not None:
            use = charged_usage(record, reservation.use, _made(request, record, worker))
        trace_id, at = (0, 0.0) if trace is None else (trace.trace_id, self.clock.utc().timestamp())
        self.tenants.ended(record)
        if trace is not None:
            model = "" if service is None else service.spec.model.served_name
            request_id = request.request_id.decode("latin-1")
            self.tracing.record(FinishedRequest(trace, record, request_id, request.http.head.path, model))
        self.access.ended(record, request.request_id, request.http.head.path, trace_id, use.input_tokens)
        if ticket is None or service is None:
            return
        name = ticket.request_class
        if record.code is Code.REQUEST_ISOLATED:
            self._report_isolated(service, request, record)
        spent, verdicts = phases(record), evaluate_slos(record, service.spec.classes[name].targets)
        self.billing.ledger.release(ticket.id)
        self.billing.exposure.release(ticket.id)
        if request.pending is not None:
            self.quotas.abandon(request.pending)
        if reservation is not None:
            self.quotas.settle(reservation, use, self.clock.monotonic())
            service.settled(ticket, use, record.meter.cached)
            workers = [*request.resume.earlier, (worker, use.output_tokens)]
            self.billing.charged(record, use, service, name, self.registry.snapshot, workers)
            if request.admission is not None:
                service.ended(record, verdicts, name, request.admission.prompt, request.admission.choices)
        service.series.classes[name].ended(record, verdicts, trace_id, at)
        service.series.ended(record, spent)

    def _report_isolated(self, service: ServiceState, request: ActiveRequest, record: RequestRecord) -> None:
        """Workers died of this request: a log line, a metric, and with the demand report an Event."""
        if request.ticket is None:
            return
        request_id, at = request.request_id.decode("latin-1"), rfc3339(self.clock.utc())
        entry = Isolated(tenant=record.tenant, request=request_id, worker=record.worker, at=at)
        service.isolate(request.ticket.request_class, entry)
        extra = {"service": service.key, "tenant": entry.tenant, "request_id": request_id, "worker": entry.worker}
        _log.warning("a request is isolated: two workers died of it", extra=extra)
        self.registry.changes.notify()


def _made(request: ActiveRequest, record: RequestRecord, worker: Worker | None) -> int:
    """Estimated output tokens of a whole answer that was given up before it reported any."""
    admission, reservation = request.admission, request.reservation
    if admission is None or admission.stream or record.sent is None:
        return 0
    if reservation is None or not reservation.use.output_tokens:
        return 0
    step_s, most = 0.0 if worker is None else worker.step_s, admission.max_tokens * admission.choices
    made = made_since(record.ended - record.sent, step_s, admission.choices)
    return reservation.use.output_tokens if made is None else min(made, most)

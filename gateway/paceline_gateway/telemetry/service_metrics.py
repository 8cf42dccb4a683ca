"""One service's metric children, made at zero when the service appears, so that `increase()` sees the first event."""

from collections.abc import Callable
from itertools import product

from prometheus_client import Gauge

from paceline_core.objects.resolved import ResolvedService
from paceline_core.registry import METRICS, Outcome, Phase, RequestClass, Verdict
from paceline_core.registry.enums import AbortReason, DegradeKind, FallbackReason, ResumeReason, ShedReason
from paceline_core.registry.metrics import DEMAND_SERIES, SERVICE
from paceline_core.telemetry import Counter, Exemplar, Histogram, Metrics
from paceline_gateway.queueing.fair_queue import FairQueue
from paceline_gateway.request.slo import AVAILABILITY, Verdicts, whole_answer_targets
from paceline_gateway.request.types import RequestRecord
from paceline_gateway.routing.circuit_breaker import BreakerState
from paceline_gateway.routing.worker import WorkerHealth

_VERDICTS = {
    "ttft": (Verdict.GOOD, Verdict.BAD_TTFT, Verdict.BAD_FAILED),
    "tpot": (Verdict.GOOD, Verdict.BAD_TPOT, Verdict.BAD_FAILED),
    "e2e": (Verdict.GOOD, Verdict.BAD_E2E, Verdict.BAD_FAILED),
    AVAILABILITY: (Verdict.GOOD, Verdict.BAD_FAILED),
}
_OK = Outcome.OK
_KINDS = ("input", "output", "cached")


class ClassMetrics:
    """The children of one class of one service."""

    def __init__(self, metrics: Metrics, service: ResolvedService, name: RequestClass) -> None:
        place = (service.namespace, service.name, name.value)
        self._outcomes: dict[Outcome, Counter] = {
            outcome: metrics.counter("paceline_requests_total", *place, outcome.value) for outcome in Outcome
        }
        # buckets of all classes: dashboards add classes up, so they need the same ones
        targets = [target for cls in service.classes.values() for target in cls.targets]
        ttft, tpot, e2e = ([t.seconds for t in targets if t.metric == metric] for metric in ("ttft", "tpot", "e2e"))
        self._duration: Histogram = metrics.histogram("paceline_request_duration_seconds", *place, targets=e2e)
        self.ttft = metrics.histogram("paceline_request_ttft_seconds", *place, targets=ttft)
        self.tpot = metrics.histogram("paceline_request_tpot_seconds", *place, targets=tpot)
        self.itl: Histogram = metrics.histogram("paceline_stream_itl_seconds", *place, targets=tpot)
        self.queued: Gauge = metrics.gauge("paceline_queue_requests", *place)
        self.oldest = metrics.gauge("paceline_queue_oldest_wait_seconds", *place)
        self.capacity = metrics.gauge("paceline_queue_capacity_requests", *place)
        self.shed = {r: metrics.counter("paceline_queue_shed_total", *place, r.value) for r in ShedReason}
        self.degraded: dict[DegradeKind, Counter] = {
            kind: metrics.counter("paceline_degraded_requests_total", *place, kind.value) for kind in DegradeKind
        }
        self._bytes = metrics.gauge("paceline_queue_bytes", *place)
        self._tenants = metrics.gauge("paceline_queue_tenants", *place)
        self._spread = metrics.gauge("paceline_queue_fairness_gap_tokens", *place)
        self._promoted: Counter = metrics.counter("paceline_queue_starvation_promotions_total", *place)
        self._demand = {count: metrics.counter(series, *place, kind) for count, (series, kind) in DEMAND_SERIES.items()}
        self._verdicts: dict[tuple[str, Verdict, bool], Counter] = {}
        self._export_targets(metrics, place, service, name)

    def ended(self, record: RequestRecord, verdicts: Verdicts, trace_id: int = 0, at: float = 0.0) -> None:
        """Count one request of this class; with a trace, as an exemplar, `at` Unix seconds."""
        self._outcomes[record.outcome].inc()
        if record.outcome is _OK:
            _observe(self._duration, record.e2e, trace_id, at)
        if (ttft := record.ttft) is not None:
            _observe(self.ttft, ttft, trace_id, at)
        if (tpot := record.tpot) is not None:
            self.tpot.observe(tpot)
        degraded = record.terms is not None and bool(record.terms.degraded)
        for slo, verdict in verdicts:
            self._verdicts[slo, verdict, degraded].inc()

    def show(self, queue: FairQueue, promoted: int, now: float) -> None:
        """Bring the queue's gauges up to date. `promoted`: dispatches before more urgent requests since."""
        self.queued.set(len(queue))
        self.oldest.set(0.0 if queue.oldest is None else now - queue.oldest)
        self._bytes.set(queue.size)
        self._tenants.set(len(queue.shares))
        self._spread.set(queue.accounts.spread)
        self._promoted.inc(promoted)

    def show_demand(self, total: Callable[[str], int]) -> None:
        """Bring the counters of demand up to date; `total` gives a count's value since the service appeared."""
        for count, counter in self._demand.items():
            counter.inc(total(count) - counter.value)

    def _export_targets(
        self, metrics: Metrics, place: tuple[str, str, str], service: ResolvedService, name: RequestClass
    ) -> None:
        cls = service.classes[name]
        self.capacity.set(cls.queue_limit)
        for target in cls.targets:
            metrics.gauge("paceline_slo_threshold_seconds", *place, target.name).set(target.seconds)
        judged = (*cls.targets, *whole_answer_targets(cls.targets, 0, 0))
        for target in judged:
            metrics.gauge("paceline_slo_objective_ratio", *place, target.name).set(target.objective)
        metrics.gauge("paceline_slo_objective_ratio", *place, AVAILABILITY).set(cls.availability)
        metrics.gauge("paceline_slo_window_seconds", *place).set(cls.slo_window_s)
        slos = dict.fromkeys((target.name, str(target.metric)) for target in judged)  # every value of the label `slo`
        for slo, metric in (*slos, (AVAILABILITY, AVAILABILITY)):
            for verdict, degraded in product(_VERDICTS[metric], (False, True)):
                labels = (slo, verdict.value, str(degraded).lower())
                child = metrics.counter("paceline_slo_requests_total", *place, *labels)
                self._verdicts[slo, verdict, degraded] = child


class ServiceMetrics:
    """The children of one service."""

    def __init__(self, metrics: Metrics, service: ResolvedService) -> None:
        self._metrics, self._place = metrics, (place := (service.namespace, service.name))
        self.classes = {name: ClassMetrics(metrics, service, name) for name in RequestClass}
        self.in_flight: Gauge = metrics.gauge("paceline_requests_in_flight", *place)
        self.held = metrics.gauge("paceline_held_requests", *place)
        self.reserved_slots: Gauge = metrics.gauge("paceline_queue_reserved_slots", *place)
        self.workers = {
            state: metrics.gauge("paceline_upstream_workers", *place, state.value) for state in WorkerHealth
        }
        self.circuits = {c: metrics.gauge("paceline_upstream_circuit_breakers", *place, c.value) for c in BreakerState}
        self.prefix_bytes: Gauge = metrics.gauge("paceline_prefix_index_bytes", *place)
        self.diverted: dict[FallbackReason, Counter] = {
            r: metrics.counter("paceline_fallback_requests_total", *place, r.value) for r in FallbackReason
        }
        self.deaths: Counter = metrics.counter("paceline_worker_deaths_total", *place)
        self._retries: Counter = metrics.counter("paceline_retries_total", *place)
        self._gap: Histogram = metrics.histogram("paceline_stream_resume_gap_seconds", *place)
        self._resumed = {r: metrics.counter("paceline_stream_resumed_total", *place, r.value) for r in ResumeReason}
        self._aborted = {r: metrics.counter("paceline_stream_aborted_total", *place, r.value) for r in AbortReason}
        self._phases = {p: metrics.histogram("paceline_request_phase_seconds", *place, p.value) for p in Phase}
        self._tokens = {kind: metrics.histogram("paceline_request_tokens", *place, kind) for kind in _KINDS}

    def isolated(self, tenant: str) -> Counter:
        """Isolated requests of this tenant; the series is created with the tenant."""
        return self._metrics.counter("paceline_isolated_requests_total", *self._place, tenant)

    def resumed(self, reason: ResumeReason, gap: float) -> None:
        """A stream resumed at another worker after `gap` seconds."""
        self._resumed[reason].inc()
        self._gap.observe(gap)

    def ended(  # noqa: PLR0913, PLR0917 - everything that is counted
        self,
        record: RequestRecord,
        name: RequestClass,
        verdicts: Verdicts,
        spent: dict[Phase, float],
        trace_id: int = 0,
        at: float = 0.0,
    ) -> None:
        """Count one request that joined the queue."""
        self.classes[name].ended(record, verdicts, trace_id, at)
        self._retries.inc(max(record.attempts - 1, 0))
        if record.abort is not None and record.outcome is not Outcome.CANCELLED:
            self._aborted[record.abort].inc()
        for phase, seconds in spent.items():
            self._phases[phase].observe(seconds)
        meter = record.meter
        for kind, tokens in zip(_KINDS, (meter.prompt, meter.output, meter.cached), strict=True):
            if tokens:
                self._tokens[kind].observe(tokens)


def _observe(histogram: Histogram, value: float, trace_id: int, at: float) -> None:
    if trace_id:
        histogram.observe_traced(Exemplar(trace_id, value, at))
    else:
        histogram.observe(value)


def forget(metrics: Metrics, namespace: str, name: str, *, targets_only: bool = False) -> None:
    """A service is gone: drop its series. With `targets_only`, drop only those per target, because targets changed."""
    for row in METRICS.values():
        if row.owner == "gateway" and row.labels[:2] == SERVICE and ("slo" in row.labels or not targets_only):
            metrics.forget(row.name, namespace, name)

"""Metrics of the process, of quotas, and by tenant.

Gauges are set at the scrape, and counters kept elsewhere are brought up to date then: open connections and lost lines,
quota counters, and usage by service, class and tenant with the used part of the budgets. Series by tenant are bounded:
only tenants that exist get a label, the first 200 of them; the rest share `_other`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from paceline_core.objects.resolved import ResolvedTenant
from paceline_core.registry import Outcome, RequestClass
from paceline_core.registry.enums import ClientLimit
from paceline_core.telemetry import BackgroundWriter, Counter, Metrics
from paceline_gateway.http.server import Server
from paceline_gateway.quota.manager import QuotaManager
from paceline_gateway.request.types import RequestRecord
from paceline_gateway.telemetry.trace import NoTracing, RequestTracing
from paceline_gateway.usage.types import NOTHING, UsageAmount

_OFF = NoTracing()


@dataclass(frozen=True, slots=True)
class LogSinks:
    """Outputs of a gateway other than metrics: log lines, and spans of traced requests. By default none."""

    lines: BackgroundWriter | None = None
    spans: RequestTracing = _OFF


class ProcessMetrics:
    """Connections, memory held for them, lost lines and lost spans."""

    def __init__(self, metrics: Metrics, server: Server, outlets: LogSinks) -> None:
        for kind in ("http", "websocket"):
            now = partial(server.count, websocket=kind == "websocket")
            metrics.gauge("paceline_gateway_connections", kind).set_function(now)
        metrics.gauge("paceline_gateway_request_body_bytes").set_function(lambda: server.memory.used)
        self._lines = metrics.counter("paceline_gateway_log_dropped_lines_total")
        self._spans = metrics.counter("paceline_gateway_trace_dropped_spans_total")
        self._outlets = outlets
        self._server = server
        self._limited = {limit: metrics.counter("paceline_gateway_limited_total", limit) for limit in ClientLimit}
        self._counted = dict.fromkeys(ClientLimit, 0)
        self._published = (0, 0)

    def show(self) -> None:
        lines, spans = self._outlets.lines, self._outlets.spans
        before, self._published = self._published, (0 if lines is None else lines.lost, spans.dropped)
        self._lines.inc(self._published[0] - before[0])
        self._spans.inc(self._published[1] - before[1])
        counts = self._server.limited()
        for limit, counter in self._limited.items():
            counter.inc(counts[limit] - self._counted[limit])
        self._counted = counts


class QuotaSeries:
    """Gauges, and a counter that is brought up to date."""

    def __init__(self, metrics: Metrics) -> None:
        self._waiting = metrics.gauge("paceline_quota_waiting_requests")
        self._gateways = metrics.gauge("paceline_quota_gateways")
        self._accounts = metrics.gauge("paceline_quota_tracked_tenants")
        self._lent = metrics.counter("paceline_quota_fallback_requests_total")
        self._reserved = {kind: metrics.gauge("paceline_quota_reserved_tokens", kind) for kind in ("input", "output")}
        self._published = 0

    def show(self, quotas: QuotaManager) -> None:
        self._waiting.set(quotas.waiting)
        self._gateways.set(quotas.gateways)
        self._accounts.set(len(quotas))
        self._lent.inc(quotas.lent - self._published)
        self._published = quotas.lent
        for kind, child in enumerate(self._reserved.values(), start=1):
            child.set(quotas.totals.open[kind])


LIMIT = 200
OTHER = "_other"
NO_TENANT = "_none"
"""Requests whose key was not accepted."""


class TenantSeries:
    """Counts requests and tokens by tenant."""

    def __init__(self, metrics: Metrics, limit: int = LIMIT) -> None:
        self._metrics = metrics
        self._limit = limit
        self._requests: dict[tuple[str, Outcome], Counter] = {}
        self._tokens: dict[tuple[str, str], Counter] = {}
        self._labels: set[str] = set()
        self._overflow = metrics.counter("paceline_tenant_label_overflow_total")

    def ended(self, record: RequestRecord) -> None:
        label = self.label(record.tenant) if record.tenant else NO_TENANT
        self._request(label, record.outcome)
        for kind, tokens in (("input", record.meter.prompt), ("output", record.meter.output)):
            if tokens:
                child = self._tokens.get((label, kind))
                if child is None:
                    child = self._metrics.counter("paceline_tenant_tokens_total", label, kind)
                    self._tokens[label, kind] = child
                child.inc(tokens)

    def refused(self, outcome: Outcome) -> None:
        """Count a request that was refused before anything was known about it."""
        self._request(NO_TENANT, outcome)

    def known(self, tenant: str) -> str:
        """The label of a tenant that has one, else the shared one; this adds no label."""
        return tenant if tenant in self._labels else OTHER

    def _request(self, label: str, outcome: Outcome) -> None:
        child = self._requests.get((label, outcome))
        if child is None:
            child = self._metrics.counter("paceline_tenant_requests_total", label, outcome.value)
            self._requests[label, outcome] = child
        child.inc()

    def label(self, tenant: str) -> str:
        """The tenant's own label, or the one that all beyond the limit share."""
        if tenant in self._labels:
            return tenant
        if len(self._labels) < self._limit:
            self._labels.add(tenant)
            return tenant
        self._overflow.inc()
        return OTHER


Key = tuple[str, RequestClass, str]


class UsageSeries:
    """Usage by tenant. Tenants without a label share one, which shows the most used of their budgets."""

    def __init__(self, metrics: Metrics, tenants: TenantSeries) -> None:
        self._metrics = metrics
        self._tenants = tenants
        self._children: dict[Key, tuple[Counter, Counter, Counter, Counter]] = {}
        self._fresh: dict[Key, UsageAmount] = {}
        self._budgets: set[tuple[str, str]] = set()
        self._age = metrics.gauge("paceline_usage_checkpoint_age_seconds")

    def charged(self, service: str, name: RequestClass, tenant: str, spent: UsageAmount) -> None:
        """Count a request's use; the next scrape shows it."""
        key = (service, name, self._tenants.label(tenant))
        self._fresh[key] = self._fresh.get(key, NOTHING) + spent

    def forget(self, service: str) -> None:
        """A service is gone; `service_metrics.forget` has dropped its series."""
        for known in (self._children, self._fresh):
            for key in [key for key in known if key[0] == service]:
                del known[key]

    def show(self, tenants: Iterable[ResolvedTenant], used: Callable[[str], UsageAmount], age_s: float) -> None:
        """Bring the gauges up to date; `age_s` is the age of the oldest use that is not stored."""
        self._age.set(age_s)
        self._publish()
        ratios: dict[tuple[str, str], float] = {}
        for tenant in tenants:
            if not tenant.budgeted:
                continue
            spent, label = used(tenant.name), self._tenants.known(tenant.name)
            for kind, part, most in (
                ("tokens", spent.tokens, tenant.monthly_tokens),
                ("dollars", spent.dollars, tenant.monthly_dollars),
            ):
                if most is not None:
                    ratio = float(part) / float(most) if most else 1.0
                    ratios[label, kind] = max(ratio, ratios.get((label, kind), 0.0))
        for label, kind in self._budgets - ratios.keys():
            self._metrics.forget("paceline_tenant_budget_ratio", label, kind)
        for (label, kind), ratio in ratios.items():
            self._metrics.gauge("paceline_tenant_budget_ratio", label, kind).set(ratio)
        self._budgets = set(ratios)

    def _publish(self) -> None:
        fresh, self._fresh = self._fresh, {}
        for key, spent in fresh.items():
            children = self._children.get(key)
            if children is None:
                service, name, label = key
                place = (*service.partition("/")[::2], name, label)
                children = self._children[key] = (
                    self._metrics.counter("paceline_usage_requests_total", *place),
                    self._metrics.counter("paceline_usage_tokens_total", *place, "input"),
                    self._metrics.counter("paceline_usage_tokens_total", *place, "output"),
                    self._metrics.counter("paceline_usage_dollars_total", *place),
                )
            amounts = (spent.requests, spent.input_tokens, spent.output_tokens, float(spent.dollars))
            for child, amount in zip(children, amounts, strict=True):
                child.inc(amount)

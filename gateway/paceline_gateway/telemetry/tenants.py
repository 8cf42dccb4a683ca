"""Series by tenant, bounded: only tenants that exist get a label, the first 200 of them, the rest share `_other`."""

from paceline_core.registry import Outcome
from paceline_core.telemetry import Metrics
from paceline_gateway.requests.nouns import Record

LIMIT = 200
OTHER = "_other"
NOBODY = "_none"
"""Requests whose key was not accepted."""


class TenantSeries:
    """Counts requests and tokens by tenant."""

    def __init__(self, metrics: Metrics, limit: int = LIMIT) -> None:
        self._metrics = metrics
        self._limit = limit
        self._labels: set[str] = set()
        self._overflow = metrics.counter("paceline_tenant_label_overflow_total")

    def ended(self, record: Record) -> None:
        """Count one request."""
        label = self._label(record.tenant) if record.tenant else NOBODY
        self._metrics.counter("paceline_tenant_requests_total", label, record.outcome.value).inc()
        for kind, tokens in (("input", record.meter.prompt), ("output", record.meter.output)):
            if tokens:
                self._metrics.counter("paceline_tenant_tokens_total", label, kind).inc(tokens)

    def refused(self, outcome: Outcome) -> None:
        """Count a request that was refused before anything was known of it."""
        self._metrics.counter("paceline_tenant_requests_total", NOBODY, outcome.value).inc()

    def _label(self, tenant: str) -> str:
        if tenant in self._labels:
            return tenant
        if len(self._labels) < self._limit:
            self._labels.add(tenant)
            return tenant
        self._overflow.inc()
        return OTHER

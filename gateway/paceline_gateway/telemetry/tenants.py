"""Series by tenant, bounded: only tenants that exist get a label, the first 200 of them, the rest share `_other`."""

from paceline_core.registry import Outcome
from paceline_core.telemetry import Counter, Metrics
from paceline_gateway.requests.nouns import RequestRecord

LIMIT = 200
OTHER = "_other"
NOBODY = "_none"
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
        """Count one request."""
        label = self.label(record.tenant) if record.tenant else NOBODY
        self._request(label, record.outcome)
        for kind, tokens in (("input", record.meter.prompt), ("output", record.meter.output)):
            if tokens:
                self._token(label, kind, tokens)

    def refused(self, outcome: Outcome) -> None:
        """Count a request that was refused before anything was known of it."""
        self._request(NOBODY, outcome)

    def known(self, tenant: str) -> str:
        """The label that a tenant has without asking for one."""
        return tenant if tenant in self._labels else OTHER

    def _request(self, label: str, outcome: Outcome) -> None:
        child = self._requests.get((label, outcome))
        if child is None:
            child = self._metrics.counter("paceline_tenant_requests_total", label, outcome.value)
            self._requests[label, outcome] = child
        child.inc()

    def _token(self, label: str, kind: str, tokens: int) -> None:
        child = self._tokens.get((label, kind))
        if child is None:
            child = self._tokens[label, kind] = self._metrics.counter("paceline_tenant_tokens_total", label, kind)
        child.inc(tokens)

    def label(self, tenant: str) -> str:
        """The tenant's own label, or the one that all beyond the limit share."""
        if tenant in self._labels:
            return tenant
        if len(self._labels) < self._limit:
            self._labels.add(tenant)
            return tenant
        self._overflow.inc()
        return OTHER

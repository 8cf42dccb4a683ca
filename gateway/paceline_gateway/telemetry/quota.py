"""What the quota counters of this gateway show at a scrape."""

from paceline_core.telemetry import Metrics
from paceline_gateway.quota.quotas import QuotaManager


class QuotaSeries:
    """Gauges, and a counter that is brought up to date."""

    def __init__(self, metrics: Metrics) -> None:
        self._waiting = metrics.gauge("paceline_quota_waiting_requests")
        self._gateways = metrics.gauge("paceline_quota_gateways")
        self._accounts = metrics.gauge("paceline_quota_accounts")
        self._lent = metrics.counter("paceline_quota_lent_requests_total")
        self._reserved = {kind: metrics.gauge("paceline_quota_reserved_tokens", kind) for kind in ("input", "output")}
        self._told = 0

    def show(self, quotas: QuotaManager) -> None:
        """Bring them up to date."""
        self._waiting.set(quotas.waiting)
        self._gateways.set(quotas.gateways)
        self._accounts.set(len(quotas))
        self._lent.inc(quotas.lent - self._told)
        self._told = quotas.lent
        for kind, child in enumerate(self._reserved.values(), start=1):
            child.set(quotas.totals.open[kind])

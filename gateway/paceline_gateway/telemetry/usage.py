"""What tenants are charged for, by service, class and tenant (the first 200), and how far their budgets are used."""

from collections.abc import Callable, Iterable

from prometheus_client import Counter

from paceline_core.objects.resolved import ResolvedTenant
from paceline_core.registry import RequestClass
from paceline_core.telemetry import Metrics
from paceline_gateway.telemetry.tenants import TenantSeries
from paceline_gateway.usage.nouns import Spent

Children = tuple[Counter, Counter, Counter, Counter]


class UsageSeries:
    """Tenants without a label of their own share one; of their budgets it shows the one that is used most."""

    def __init__(self, metrics: Metrics, tenants: TenantSeries) -> None:
        self._metrics = metrics
        self._tenants = tenants
        self._children: dict[tuple[str, RequestClass, str], Children] = {}
        self._budgets: set[tuple[str, str]] = set()
        self._age = metrics.gauge("paceline_usage_checkpoint_age_seconds")

    def charged(self, service: str, name: RequestClass, tenant: str, spent: Spent) -> None:
        """Count a request's use."""
        label = self._tenants.label(tenant)
        children = self._children.get((service, name, label))
        if children is None:
            children = self._children[service, name, label] = self._made(service, name, label)
        amounts = (spent.requests, spent.input_tokens, spent.output_tokens, float(spent.dollars))
        for child, amount in zip(children, amounts, strict=True):
            if amount:
                child.inc(amount)

    def forget(self, service: str) -> None:
        """A service is gone; `series.forget` has dropped what it showed."""
        for key in [key for key in self._children if key[0] == service]:
            del self._children[key]

    def show(self, tenants: Iterable[ResolvedTenant], used: Callable[[str], Spent], age_s: float) -> None:
        """Bring the gauges up to date; `age_s` is that of the oldest use that is not stored."""
        self._age.set(age_s)
        ratios: dict[tuple[str, str], float] = {}
        for tenant in tenants:
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

    def _made(self, service: str, name: RequestClass, label: str) -> Children:
        namespace, _, own = service.partition("/")
        place = (namespace, own, name, label)
        return (
            self._metrics.counter("paceline_usage_requests_total", *place),
            self._metrics.counter("paceline_usage_tokens_total", *place, "input"),
            self._metrics.counter("paceline_usage_tokens_total", *place, "output"),
            self._metrics.counter("paceline_usage_dollars_total", *place),
        )

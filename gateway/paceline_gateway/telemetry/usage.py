"""What tenants are charged for, by service, class and tenant (the first 200), and how far their budgets are used."""

from collections.abc import Callable, Iterable

from paceline_core.objects.resolved import ResolvedTenant
from paceline_core.registry import RequestClass
from paceline_core.telemetry import Counter, Metrics
from paceline_gateway.telemetry.tenants import TenantSeries
from paceline_gateway.usage.nouns import NOTHING, UsageAmount

Key = tuple[str, RequestClass, str]
Children = tuple[Counter, Counter, Counter, Counter]


class UsageSeries:
    """Tenants without a label of their own share one; of their budgets it shows the one that is used most."""

    def __init__(self, metrics: Metrics, tenants: TenantSeries) -> None:
        self._metrics = metrics
        self._tenants = tenants
        self._children: dict[Key, Children] = {}
        self._fresh: dict[Key, UsageAmount] = {}
        self._budgets: set[tuple[str, str]] = set()
        self._age = metrics.gauge("paceline_usage_checkpoint_age_seconds")

    def charged(self, service: str, name: RequestClass, tenant: str, spent: UsageAmount) -> None:
        """Count a request's use; it is shown with the next scrape."""
        key = (service, name, self._tenants.label(tenant))
        self._fresh[key] = self._fresh.get(key, NOTHING) + spent

    def forget(self, service: str) -> None:
        """A service is gone; `series.forget` has dropped what it showed."""
        for known in (self._children, self._fresh):
            for key in [key for key in known if key[0] == service]:
                del known[key]

    def show(self, tenants: Iterable[ResolvedTenant], used: Callable[[str], UsageAmount], age_s: float) -> None:
        """Bring the gauges up to date; `age_s` is that of the oldest use that is not stored."""
        self._age.set(age_s)
        self._tell()
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

    def _tell(self) -> None:
        fresh, self._fresh = self._fresh, {}
        for key, spent in fresh.items():
            children = self._children.get(key)
            if children is None:
                children = self._children[key] = self._made(*key)
            amounts = (spent.requests, spent.input_tokens, spent.output_tokens, float(spent.dollars))
            for child, amount in zip(children, amounts, strict=True):
                child.inc(amount)

    def _made(self, service: str, name: RequestClass, label: str) -> Children:
        namespace, _, own = service.partition("/")
        place = (namespace, own, name, label)
        return (
            self._metrics.counter("paceline_usage_requests_total", *place),
            self._metrics.counter("paceline_usage_tokens_total", *place, "input"),
            self._metrics.counter("paceline_usage_tokens_total", *place, "output"),
            self._metrics.counter("paceline_usage_dollars_total", *place),
        )

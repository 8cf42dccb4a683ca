"""The cost of a request, and the exposure of a monthly budget to open requests. Pure.

Exposure: how far open requests can pass a budget. A request reserves what similar ones have used, and may use more: all
that `max_tokens` allows, and one token for each byte of its prompt. The difference is its exposure. A tenant's open
requests together may be exposed by SLACK of its budget; a request that would exceed that reserves its maximum. So, with
u used, r reserved and x exposed, u + r <= budget when a request is admitted, the open requests end at u + r + x at
most, and x <= SLACK * budget, unless one request alone is exposed by more: then no other one is exposed.
Invariant: a month's use <= budget + max(SLACK * budget, the maximum of one request), in tokens and in dollars.
Each of `gateways` keeps its part of SLACK. Known holes: what other gateways have reserved, an engine of another kind
that ignores `max_tokens`, and what a chat template adds to a prompt.

Cost: the seconds of a replica that the request's tokens take, times the price of that replica. The seconds follow the
worker's own step-time model for a well-used replica: prompt tokens in full steps (cached ones are free), output tokens
with a request in each slot. So the cost depends on the request and the worker and not on other requests: tenants can
predict it. What replicas cost beyond the sum of all requests (`paceline_cost_dollars_total` less
`paceline_usage_dollars_total`) is the price of idle capacity.
Known hole: a worker that reports no step times (another engine), or a device whose price is unknown, costs nothing.
"""

from collections.abc import Sequence
from decimal import Decimal
from typing import Final, NamedTuple

from paceline_core.errors import RequestError
from paceline_core.objects.resolved import ResolvedTenant
from paceline_core.wire import StepTime
from paceline_gateway.usage.ledger import UsageLedger
from paceline_gateway.usage.types import NOTHING, ZERO, UsageAmount

GRAIN: Final = Decimal("0.000000001")
MOST_S: Final = 1e9
"""More seconds of a replica than any request takes: a step-time model that gives more is ignored."""
_PER_HOUR: Final = Decimal(3600 * 10**9)


class PricedReplica(NamedTuple):
    """The replica that a request runs on: slots, prompt tokens in a step, US dollars an hour."""

    step_time: StepTime
    slots: int
    step_tokens: int
    per_hour: Decimal

    def seconds(self, *, prompt: int, cached: int, output: int) -> float:
        """Seconds of the replica that these tokens take."""
        model, fresh = self.step_time, max(prompt - cached, 0)
        read = model.prefill + model.base / (self.step_tokens or 1) + model.context * (cached + fresh / 2)
        write = model.base / (self.slots or 1) + model.sequence + model.kv * (prompt + output / 2)
        return max(fresh * read + output * write, 0.0)

    def cost(self, *, prompt: int, cached: int, output: int) -> Decimal:
        """US dollars for these seconds, to the billionth."""
        seconds = min(self.seconds(prompt=prompt, cached=cached, output=output), MOST_S)
        return (round(seconds * 1e9) * self.per_hour / _PER_HOUR).quantize(GRAIN)


Part = tuple[PricedReplica | None, int]
"""A replica, None if unknown, and the number of output tokens at the end of its part."""


def cost_of(parts: Sequence[Part], *, prompt: int, cached: int) -> Decimal:
    """US dollars for an answer that several replicas made, each at its own price.

    The prompt is charged where it was read first. Later replicas read it and the text so far again, which is not
    charged to the tenant.
    """
    dollars, earlier = ZERO, 0
    for number, (replica, output) in enumerate(parts):
        if replica is not None:
            dollars += replica.cost(prompt=prompt, cached=cached, output=output)
            dollars -= replica.cost(prompt=prompt, cached=cached, output=earlier) if number else ZERO
        earlier = output
    return dollars


SLACK: Final = 0.1


class BudgetExposure:
    """The exposure of every tenant's open requests."""

    def __init__(self) -> None:
        self._of: dict[str, UsageAmount] = {}
        self._requests: dict[int, tuple[str, UsageAmount]] = {}

    def __len__(self) -> int:
        return len(self._requests)

    def of(self, tenant: str) -> UsageAmount:
        """The most that a tenant's open requests may use beyond their reservations."""
        return self._of.get(tenant, NOTHING)

    def add(self, request: int, tenant: str, beyond: UsageAmount) -> None:
        """A request may use `beyond` more than it reserved. Call `release` at its end."""
        if beyond:
            self._requests[request] = (tenant, beyond)
            self._of[tenant] = self.of(tenant) + beyond

    def release(self, request: int) -> None:
        found = self._requests.pop(request, None)
        if found is not None:
            tenant, beyond = found
            rest = self._of.pop(tenant) - beyond
            if rest:
                self._of[tenant] = rest


def allows(tenant: ResolvedTenant, exposed: UsageAmount, beyond: UsageAmount, gateways: int) -> bool:
    """Whether one more request may be exposed by `beyond`; one alone always may."""
    if not (exposed and beyond):
        return True
    then, part = exposed + beyond, SLACK / max(gateways, 1)
    tokens, dollars = tenant.monthly_tokens, tenant.monthly_dollars
    return (tokens is None or then.tokens <= tokens * part) and (
        dollars is None or float(then.dollars) <= float(dollars) * part
    )


def reserve(  # noqa: PLR0913, PLR0917 - all inputs of the decision
    ledger: UsageLedger,
    exposure: BudgetExposure,
    request: int,
    tenant: ResolvedTenant,
    need: UsageAmount,
    most: UsageAmount,
    gateways: int = 1,
) -> RequestError | None:
    """Reserve a request's expected use, or its maximum if the exposure is too large; the error if too little is left.

    Call `release` on both at its end.
    """
    beyond = most - need
    if not allows(tenant, exposure.of(tenant.name), beyond, gateways):
        need, beyond = most, NOTHING
    refusal = ledger.reserve(request, tenant, need)
    if refusal is None:
        exposure.add(request, tenant.name, beyond)
    return refusal

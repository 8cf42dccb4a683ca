"""How far a month's budget can be passed by what is open: each request's most, beyond what it has reserved. Pure.

A request reserves what requests like it have used, and may use more: all that `max_tokens` allows, and a token for
each byte of its prompt. Together a tenant's open requests may be short of their most by SLACK of its budget; the
request that would take them beyond that reserves its most. So, with u used, r reserved and x exposed, u + r <= budget
when a request is admitted, what is open ends at u + r + x at most, and x <= SLACK * budget unless one request alone is
exposed by more: then nothing else is exposed beside it.
Invariant: a month's use <= budget + max(SLACK * budget, the most of one request), in tokens and in dollars.
Each of `gateways` keeps its part of SLACK. Known holes: what other gateways have reserved, an engine of another kind
that follows no `max_tokens`, and what a chat template adds to a prompt.

What a request costs: the seconds of a replica that its tokens take, times the price of that replica.

The seconds are those of the worker's own step-time model in a replica that is well used: prompt tokens in full steps
(cached ones are free), output tokens beside a request in each slot. So a request's cost depends on what it is and where
it ran and not on who else was there, tenants can foresee it, and what replicas cost beyond the sum of all requests
(`paceline_cost_dollars_total` less `paceline_usage_dollars_total`) is the price of idle capacity.
Known hole: a worker that tells no step times (a foreign engine), or a device whose price is unknown, costs nothing.
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
"""More seconds of a replica than any request takes: a model of step times that says more is not believed."""
_PER_HOUR: Final = Decimal(3600 * 10**9)


class PricedReplica(NamedTuple):
    """Where a request runs: requests at once, prompt tokens in a step, US dollars an hour."""

    step_time: StepTime
    slots: int
    step_tokens: int
    per_hour: Decimal

    def seconds(self, *, prompt: int, cached: int, output: int) -> float:
        """Of its time that so many tokens take."""
        model, fresh = self.step_time, max(prompt - cached, 0)
        read = model.prefill + model.base / (self.step_tokens or 1) + model.context * (cached + fresh / 2)
        write = model.base / (self.slots or 1) + model.sequence + model.kv * (prompt + output / 2)
        return max(fresh * read + output * write, 0.0)

    def cost(self, *, prompt: int, cached: int, output: int) -> Decimal:
        """US dollars for these seconds, to the billionth."""
        seconds = min(self.seconds(prompt=prompt, cached=cached, output=output), MOST_S)
        return (round(seconds * 1e9) * self.per_hour / _PER_HOUR).quantize(GRAIN)


Part = tuple[PricedReplica | None, int]
"""A replica, None where it is not known, and how many output tokens there were at the end of its part."""


def cost_of(parts: Sequence[Part], *, prompt: int, cached: int) -> Decimal:
    """US dollars for an answer that several replicas made, each at its own price.

    The prompt is paid where it was read first. That the later ones read it again, and what was told so far, is not the
    tenant's doing.
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
    """Of every tenant's open requests."""

    def __init__(self) -> None:
        self._of: dict[str, UsageAmount] = {}
        self._requests: dict[int, tuple[str, UsageAmount]] = {}

    def __len__(self) -> int:
        return len(self._requests)

    def of(self, tenant: str) -> UsageAmount:
        """The most that a tenant's open requests may use beyond what they have reserved."""
        return self._of.get(tenant, NOTHING)

    def add(self, request: int, tenant: str, beyond: UsageAmount) -> None:
        """A request may use so much more than it has reserved. `release` it in the end."""
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
    """Whether one more may be exposed so far; one alone always may."""
    if not (exposed and beyond):
        return True
    then, part = exposed + beyond, SLACK / max(gateways, 1)
    tokens, dollars = tenant.monthly_tokens, tenant.monthly_dollars
    return (tokens is None or then.tokens <= tokens * part) and (
        dollars is None or float(then.dollars) <= float(dollars) * part
    )


def reserve(  # noqa: PLR0913, PLR0917 - all that it rests on
    ledger: UsageLedger,
    exposure: BudgetExposure,
    request: int,
    tenant: ResolvedTenant,
    need: UsageAmount,
    most: UsageAmount,
    gateways: int = 1,
) -> RequestError | None:
    """Reserve what a request is expected to need, or its most where too much is open; or say why there is too little.

    `release` it at both.
    """
    beyond = most - need
    if not allows(tenant, exposure.of(tenant.name), beyond, gateways):
        need, beyond = most, NOTHING
    refusal = ledger.reserve(request, tenant, need)
    if refusal is None:
        exposure.add(request, tenant.name, beyond)
    return refusal

"""How far a month's budget can be passed by what is open: each request's most, beyond what it has reserved. Pure.

A request reserves what requests like it have used, and may use more: all that `max_tokens` allows, and a token for
each byte of its prompt. Together a tenant's open requests may be short of their most by SLACK of its budget; the
request that would take them beyond that reserves its most. So, with u used, r reserved and x exposed, u + r <= budget
when a request is admitted, what is open ends at u + r + x at most, and x <= SLACK * budget unless one request alone is
exposed by more: then nothing else is exposed beside it.
Invariant: a month's use <= budget + max(SLACK * budget, the most of one request), in tokens and in dollars.
Each of `gateways` keeps its part of SLACK. Known holes: what other gateways have reserved, an engine of another kind
that follows no `max_tokens`, and what a chat template adds to a prompt.
"""

from typing import Final

from paceline_core.errors import RequestError
from paceline_core.objects.resolved import ResolvedTenant
from paceline_gateway.usage.ledger import UsageLedger
from paceline_gateway.usage.nouns import NOTHING, UsageAmount

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
        """Forget a request that has ended."""
        tenant, beyond = self._requests.pop(request, ("", NOTHING))
        if beyond:
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

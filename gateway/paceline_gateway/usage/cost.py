"""What a request costs: the seconds of a replica that its tokens take, times the price of that replica.

The seconds are those of the worker's own step-time model in a replica that is well used: prompt tokens in full steps
(cached ones are free), output tokens beside a request in each slot. So a request's cost depends on what it is and where
it ran and not on who else was there, tenants can foresee it, and what replicas cost beyond the sum of all requests
(`paceline_cost_dollars_total` less `paceline_usage_dollars_total`) is the price of idle capacity.
Known hole: a worker that tells no step times (a foreign engine), or a device whose price is unknown, costs nothing.
"""

from collections.abc import Sequence
from decimal import Decimal
from typing import Final, NamedTuple

from paceline_core.wire import StepTime
from paceline_gateway.usage.nouns import ZERO

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
    dollars, told = ZERO, 0
    for number, (replica, output) in enumerate(parts):
        if replica is not None:
            dollars += replica.cost(prompt=prompt, cached=cached, output=output)
            dollars -= replica.cost(prompt=prompt, cached=cached, output=told) if number else ZERO
        told = output
    return dollars

"""When a stream that has been silent for long is given to a second worker (a hedged request: Dean and Barroso, The Tail
at Scale, 2013). Pure.

After the p95 of what the service's first tokens of that class take from dispatch, or after a given time; for at most a
share of the requests of ten seconds, so that a service that is slow because it is full is not asked for more. Until
ENOUGH first tokens were seen nothing is known, and nothing is doubled. What is learned of a doubled request is the time
since its first dispatch, so that winners do not make the next ones look late sooner.
"""

from paceline_core.registry.enums import RequestClass
from paceline_gateway.quota.outputs import ENOUGH, Lengths
from paceline_gateway.requests.budget import RetryBudget

QUANTILE = 0.95


class Hedges:
    """One service's. `after_s`: None to learn it; `share` of requests that may be doubled, or one in ten seconds."""

    def __init__(self, after_s: float | None, share: float) -> None:
        self._after_s = after_s
        self._budget = RetryBudget(share, floor=1)
        self._waits = {name: Lengths(QUANTILE) for name in RequestClass}

    def arrived(self, now: float) -> None:
        """A request asks for the service."""
        self._budget.request(now)

    def began(self, name: RequestClass, seconds: float) -> None:
        """A stream of this class began so long after its first dispatch."""
        self._waits[name].learn(round(seconds * 1000))

    def late(self, name: RequestClass, seconds: float) -> bool:
        """Whether so long without a first token is late."""
        if self._after_s is not None:
            return seconds >= self._after_s
        waits = self._waits[name]
        return waits.count >= ENOUGH and seconds * 1000 > waits.quantile()

    def allows(self, now: float) -> bool:
        """Whether one more may be doubled now."""
        return self._budget.allows(now)

    def take(self, now: float) -> None:
        """One more is doubled."""
        self._budget.take(now)

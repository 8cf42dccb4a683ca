"""Which destination of a route's chain takes a request: the one drawn by weight, unless it cannot and a later one can.

The chain is in order: the backend drawn, the others of its kind, those for overflow, those for failure, then the
route's fallback models. Each kind has its own reason to be asked; none is asked that is in no better state itself.
If nobody is better off, the first one holds or refuses the request by its own rules. Decided once, on admission.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Literal

When = Literal["always", "overflow", "failure", "fallback"]


class Pressure(IntEnum):
    """How a service would take one more request."""

    OPEN = 0
    CROWDED = 1
    """It has workers, but the predicted wait breaks the promise."""
    FULL = 2
    """It would refuse it."""
    DOWN = 3
    """No worker can be asked."""


_REASON = {
    "always": Pressure.FULL,
    "overflow": Pressure.CROWDED,
    "failure": Pressure.DOWN,
    "fallback": Pressure.FULL,
}
"""How badly off all must be that were asked before it for a destination of this kind to be asked."""


def choose(chain: Sequence[tuple[When, Pressure]]) -> int:
    """The place in the chain that takes the request."""
    best = chain[0][1]
    for place, (when, pressure) in enumerate(chain):
        if best >= _REASON[when]:
            if pressure < min(best, Pressure.FULL):
                return place
            best = min(best, pressure)
    return 0

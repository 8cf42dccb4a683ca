"""Which destination of a route's chain takes a request: the one drawn by weight, unless it cannot and a later one can.

The chain is in order: the backend drawn, the others of its kind, those for overflow, those for failure, then the
route's fallback models. Each kind has its own reason to be asked; none is asked that is in no better state itself.
If nobody is better off, the first one holds or refuses the request by its own rules.

A service is crowded where the first token would come later than promised: by what is queued at its workers, or, where
no slot is free, by the wait for one. A wait that is not known diverts nobody. Known hole: the whole line is taken to be
ahead, also of a tenant whose turn comes sooner.

Decided on admission, and again for who waits for a worker: when none can be asked any more, when the request would have
to leave the queue, when workers have failed it, or when it has waited its share of the time that it may wait. A
request only ever goes on, so each destination is asked at most once.
"""

from collections.abc import Sequence
from enum import IntEnum
from typing import Literal

When = Literal["always", "overflow", "failure", "fallback"]


class DestinationLoad(IntEnum):
    """How a service would take one more request."""

    OPEN = 0
    OVERLOADED = 1
    """It has workers, but the predicted wait breaks the promise."""
    QUEUE_FULL = 2
    """It would refuse it."""
    UNAVAILABLE = 3
    """No worker can be reached."""


_REASON = {
    "always": DestinationLoad.QUEUE_FULL,
    "overflow": DestinationLoad.OVERLOADED,
    "failure": DestinationLoad.UNAVAILABLE,
    "fallback": DestinationLoad.QUEUE_FULL,
}
"""How badly off all must be that were asked before it for a destination of this kind to be asked."""


def overloaded(ttft_s: float, wait_s: float | None, promised: Sequence[float]) -> DestinationLoad:
    """How a service with workers takes a request: `ttft_s` after it has waited so long for a slot, None if not known.

    Who must wait is held to the strictest of the promises, who need not to the loosest.
    """
    if not promised:
        return DestinationLoad.OPEN
    late = ttft_s + wait_s > min(promised) if wait_s else ttft_s > max(promised)
    return DestinationLoad.OVERLOADED if late else DestinationLoad.OPEN


def choose(chain: Sequence[tuple[When, DestinationLoad]]) -> int:
    """The place in the chain that takes the request."""
    place = next_destination(chain[1:], chain[0][1])
    return 0 if place is None else place + 1


def next_destination(rest: Sequence[tuple[When, DestinationLoad]], here: DestinationLoad) -> int | None:
    """The place in the rest of a chain that takes a request from where it is now; None if it is best off there."""
    best = here
    for place, (when, pressure) in enumerate(rest):
        if best >= _REASON[when]:
            if pressure < min(best, DestinationLoad.QUEUE_FULL):
                return place
            best = min(best, pressure)
    return None


def share_s(hold_s: float, left: int) -> float:
    """How long a request waits at one destination while so many others are left; it may wait `hold_s` in all."""
    return hold_s / (left + 1)

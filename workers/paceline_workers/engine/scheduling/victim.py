"""Whom to preempt: the request that gives back most pages, and most growth to come, for the work that is lost.

Nobody who came back less than RESPITE steps ago is chosen while anybody else is left, so that two requests cannot take
turns in undoing each other; and the oldest running request is never chosen for want of pages, so there is always one
that only moves forward: no livelock.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from paceline_workers.engine.scheduling.request import Request

RESPITE = 4


@dataclass(frozen=True, slots=True)
class Candidate:
    """A running request: pages it would free and would come to need yet, seconds of work that would be lost."""

    request: Request
    freed: int
    growth: float
    lost: float

    @property
    def worth(self) -> float:
        """Pages for each second; a request that loses nothing is worth most."""
        return (self.freed + self.growth) / max(self.lost, 1e-9)


Choice = Callable[[Iterable[Candidate], int], Request]


def cheapest(candidates: Iterable[Candidate], step: int) -> Request:
    """The best candidate in this step; of equal ones, and of those that all need respite, the last in the list."""
    listed = list(candidates)
    rested = [found for found in listed if rests(found.request, step)]
    if not rested:
        return listed[-1].request
    return max(reversed(rested), key=lambda found: found.worth).request


def rests(request: Request, step: int) -> bool:
    """Whether it may be preempted (again)."""
    return not request.preemptions or step - request.resumed_step >= RESPITE

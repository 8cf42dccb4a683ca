"""The order of the classes: weighted fair shares of tokens, by virtual time (start-time fair queueing).

A class's time grows by the tokens spent on it over its weight, and the class that lags most goes first; so classes
with work share tokens in proportion to their weights, and none is starved: it waits until the others have had
their multiple of its tokens. A class without work accumulates no credit: when work comes, it starts where the slowest
of the busy ones is. Ties go to the most urgent class. A policy is an object with these four methods.
"""

from collections.abc import Mapping, Set
from typing import Protocol

from paceline_core.registry.enums import RequestClass

WEIGHTS: Mapping[RequestClass, float] = {
    RequestClass.INTERACTIVE: 8.0,
    RequestClass.BATCH: 2.0,
    RequestClass.OFFLINE: 1.0,
}


class ClassPolicy(Protocol):
    """How the scheduler orders classes."""

    def order(self, busy: Set[RequestClass]) -> list[RequestClass]:
        """Classes with work left, in the order of their turns."""
        ...

    def charge(self, name: RequestClass, tokens: int) -> None:
        """Tokens of a class are in the step."""
        ...

    def yields(self, holder: RequestClass, claimant: RequestClass) -> bool:
        """Whether a running request of the holder's class may be preempted for a waiting one of the claimant's."""
        ...

    def service(self, seconds: float) -> float:
        """A request's service in the response ratio (a constant makes it first come, first served)."""
        ...


class WeightedShares:
    """The policy described above."""

    def __init__(self, weights: Mapping[RequestClass, float] | None = None) -> None:
        self._weights = {**WEIGHTS, **(weights or {})}
        self._times = dict.fromkeys(RequestClass, 0.0)
        self._busy: frozenset[RequestClass] = frozenset()

    def order(self, busy: Set[RequestClass]) -> list[RequestClass]:
        """Furthest behind first; newly busy classes lose the share they did not use."""
        if self._busy != busy:
            stayed = [self._times[name] for name in self._busy & busy]
            start = min(stayed) if stayed else max(self._times.values())
            for name in busy - self._busy:
                self._times[name] = max(self._times[name], start)
            self._busy = frozenset(busy)
        return sorted((name for name in RequestClass if name in busy), key=self._times.__getitem__)

    def charge(self, name: RequestClass, tokens: int) -> None:
        self._times[name] += tokens / self._weights[name]

    def yields(self, holder: RequestClass, claimant: RequestClass) -> bool:
        """Only to a class of greater weight that has had no more than its share."""
        heavier = self._weights[claimant] > self._weights[holder]
        return heavier and self._times[claimant] <= self._times[holder]

    def service(self, seconds: float) -> float:
        """As predicted."""
        return seconds

"""Which class is next: the most urgent, but nobody is starved.

A class whose eldest has waited for STARVED_S, or for half of what it may wait if that is less, is starving. Then every
request of a more urgent class that goes earns it a part of a turn, by the shares that workers give to classes: with
all three backlogged eight interactive requests let two of batch and one of offline go. A starving class whose turn it
is goes first, if there is room for its kind.
"""

from collections import Counter
from collections.abc import Mapping

from paceline_core.registry.enums import RequestClass
from paceline_gateway.queues.line import FairQueue
from paceline_gateway.routing.worker import SHARES

STARVED_S = {RequestClass.BATCH: 30.0, RequestClass.OFFLINE: 120.0}


class StarvationGuard:
    """`promoted` counts who went before more urgent ones, by class; whoever reads it may clear it."""

    def __init__(self, lines: Mapping[RequestClass, FairQueue]) -> None:
        self._lines = lines
        self._earned = dict.fromkeys(STARVED_S, 0.0)
        self.promoted: Counter[RequestClass] = Counter()

    def due(self, now: float) -> list[RequestClass]:
        """Starving classes whose turn it is."""
        for name in self._earned:
            if self._earned[name] and not self._starving(name, now):
                self._earned[name] = 0.0
        return [name for name, earned in self._earned.items() if earned >= 1]

    def took(self, name: RequestClass) -> None:
        """A starving class took its turn."""
        self._earned[name] -= 1
        self.promoted[name] += 1

    def went(self, urgent: RequestClass, now: float) -> None:
        """One of this class went; those less urgent who starve earn by it."""
        for name in self._earned:
            if SHARES[name] < SHARES[urgent] and self._starving(name, now):
                self._earned[name] = min(self._earned[name] + SHARES[name] / SHARES[urgent], 1.0)

    def _starving(self, name: RequestClass, now: float) -> bool:
        eldest = self._lines[name].eldest
        if eldest is None:
            return False
        return now - eldest.joined >= min(STARVED_S[name], (eldest.deadline - eldest.joined) / 2)

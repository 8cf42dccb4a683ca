"""The search for launch numbers: from the table's, one step at a time on each number's ladder, while it gets faster.

Every number has few sensible values and mostly a slope of its own, so a climb tries a dozen of some hundred
combinations. Known hole: it stops on a hill beside a higher one; who suspects that begins elsewhere.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

ENOUGH = 0.99
"""A step must take less than this share of the time before: less is noise."""


@dataclass(frozen=True, slots=True)
class Climbed:
    """The start, the best numbers, and the seconds of all that were tried (infinite: it does not run)."""

    start: Any
    best: Any
    tried: dict[Any, float]

    @property
    def gain(self) -> float:
        """How many times as fast as the start."""
        return self.tried[self.start] / self.tried[self.best]


def climb(start: Any, ladders: Mapping[str, Sequence[Any]], seconds: Callable[[Any], float]) -> Climbed:
    """From `start`, a frozen dataclass, along `ladders`: the values of some of its fields, in order."""
    tried = {start: seconds(start)}
    best = start
    while True:
        for candidate in neighbours(best, ladders):
            if candidate not in tried:
                tried[candidate] = seconds(candidate)
        found = min(tried, key=tried.__getitem__)
        if not tried[found] < ENOUGH * tried[best] or math.isinf(tried[found]):
            return Climbed(start, best, tried)
        best = found


def neighbours(launch: Any, ladders: Mapping[str, Sequence[Any]]) -> Iterator[Any]:
    """One number changed to the next value up or down; one that is no step of its ladder, to the ladder's ends."""
    for name, ladder in ladders.items():
        value = getattr(launch, name)
        place = ladder.index(value) if value in ladder else None
        steps = (ladder[0], ladder[-1]) if place is None else (*ladder[:place][-1:], *ladder[place + 1 :][:1])
        for step in steps:
            yield replace(launch, **{name: step})

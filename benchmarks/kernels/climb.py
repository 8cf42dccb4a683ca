"""The search for launch numbers: from the table's, one step at a time on each number's ladder, while it gets faster.

Every number has few sensible values and mostly a slope of its own, so a climb tries a dozen of some hundred
combinations. It stops on a hill beside a higher one: where numbers pay only together, there are several starts.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

ENOUGH = 0.99
"""A step must take less than this share of the time before: less is noise."""


@dataclass(frozen=True, slots=True)
class Climbed:
    """The table's numbers, the best, and the seconds of all that were tried (infinite: it does not run)."""

    start: Any
    best: Any
    tried: dict[Any, float]

    @property
    def gain(self) -> float:
        """How many times as fast as the table's."""
        return self.tried[self.start] / self.tried[self.best]


def climb(starts: Sequence[Any], ladders: Mapping[str, Sequence[Any]], seconds: Callable[[Any], float]) -> Climbed:
    """The best of the climbs from each start, the table's first, along `ladders`: some fields' values, in order."""
    tried: dict[Any, float] = {}

    def timed(launch: Any) -> float:
        if launch not in tried:
            tried[launch] = seconds(launch)
        return tried[launch]

    best = starts[0]
    for start in starts:
        top = _top(start, ladders, timed)
        if timed(top) < ENOUGH * timed(best):
            best = top
    return Climbed(starts[0], best, tried)


def _top(start: Any, ladders: Mapping[str, Sequence[Any]], timed: Callable[[Any], float]) -> Any:
    best, found = start, timed(start)
    while True:
        candidate = min(neighbours(best, ladders), key=timed)
        if not timed(candidate) < ENOUGH * found:
            return best
        best, found = candidate, timed(candidate)


def neighbours(launch: Any, ladders: Mapping[str, Sequence[Any]]) -> Iterator[Any]:
    """One number changed to the next value up or down; one that is no step of its ladder, to the ladder's ends."""
    for name, ladder in ladders.items():
        value = getattr(launch, name)
        place = ladder.index(value) if value in ladder else None
        steps = (ladder[0], ladder[-1]) if place is None else (*ladder[:place][-1:], *ladder[place + 1 :][:1])
        for step in steps:
            yield replace(launch, **{name: step})

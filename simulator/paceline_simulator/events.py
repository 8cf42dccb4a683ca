"""The virtual clock, and the events ahead of it.

Time passes only from one event to the next. Events of the same instant run in the order in which they were added, so a
simulation of the same inputs repeats itself exactly; nothing reads a real clock.
"""

import heapq
from collections.abc import Callable
from itertools import count
from math import inf
from typing import Any


class EventQueue:
    """`now` is seconds since the simulation's start."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._order = count()
        self._stopped = False

    def __len__(self) -> int:
        return len(self._events)

    def at(self, time: float, action: Callable[..., object], *arguments: Any) -> None:
        """Call `action(*arguments)` at this time. Raises ValueError for a time that has passed."""
        if not time >= self.now:
            raise ValueError(f"an event at {time} s cannot be added at {self.now} s")
        heapq.heappush(self._events, (time, next(self._order), action, arguments))

    def every(self, period: float, action: Callable[[], object], first: float = 0.0) -> None:
        """Call `action` each `period` seconds, from `first` on, as long as the simulation runs."""

        def again(number: int) -> None:
            action()
            self.at(first + (number + 1) * period, again, number + 1)

        self.at(first, again, 0)

    def run(self, until: float = inf) -> None:
        """Run events until none is left, `until` is reached (later events stay), or an event calls `stop`."""
        events = self._events
        self._stopped = False
        while events and events[0][0] <= until and not self._stopped:
            self.now, _, action, arguments = heapq.heappop(events)
            action(*arguments)
        if not self._stopped and until < inf:
            self.now = max(self.now, until)

    def stop(self) -> None:
        """End `run` after the current event."""
        self._stopped = True

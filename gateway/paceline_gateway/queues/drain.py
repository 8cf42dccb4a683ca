"""How fast a queue moves, and from that how long a refused request should wait before it comes again."""

import math

MEMORY_S = 10.0
SOONEST_S = 1.0
LATEST_S = 60.0
UNKNOWN_S = 5.0


class DrainRate:
    """Departures per second with a memory of ten seconds; an exponential average over irregular events."""

    def __init__(self) -> None:
        self._level = 0.0
        self._at = 0.0

    def departed(self, now: float) -> None:
        """One ticket went to a worker."""
        self._level = self.per_second(now) + 1 / MEMORY_S
        self._at = now

    def per_second(self, now: float) -> float:
        """Departures per second now."""
        return self._level * math.exp((self._at - now) / MEMORY_S) if self._level else 0.0

    def retry_after(self, waiting: int, now: float) -> float:
        """Seconds until `waiting` tickets will have left, at this rate, between 1 and 60; 5 while nothing moves."""
        rate = self.per_second(now)
        if rate * LATEST_S < 1:
            return UNKNOWN_S
        return min(max(waiting / rate, SOONEST_S), LATEST_S)

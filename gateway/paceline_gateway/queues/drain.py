"""How fast a queue moves, and from that how long a refused request should wait before it comes again."""

import math

MEMORY_S = 10.0
SHORTEST_S = 1.0
SOONEST_S = 1.0
LATEST_S = 60.0
UNKNOWN_S = 5.0


class DispatchRate:
    """Departures per second with a memory of ten seconds; an exponential average over irregular events.

    After as long without a departure it begins anew, and weighs a young average by its age (at least a second): the
    idle time before a burst says nothing about how fast the burst is served.
    """

    def __init__(self) -> None:
        self._level = 0.0
        self._began = -math.inf
        self._at = -math.inf

    def departed(self, now: float, amount: float = 1.0) -> None:
        """One ticket, or so much of what is counted, went to a worker."""
        if now - self._at > MEMORY_S:
            self._level, self._began = 0.0, now
        self._level = self._decayed(now) + amount / MEMORY_S
        self._at = now

    def per_second(self, now: float) -> float:
        """Departures per second now."""
        age = max(now - self._began, SHORTEST_S)
        return self._decayed(now) / -math.expm1(-age / MEMORY_S)

    def known(self, now: float) -> bool:
        """Whether it has been watched for as long as it remembers, up to now."""
        return now - self._began >= MEMORY_S >= now - self._at

    def _decayed(self, now: float) -> float:
        return self._level * math.exp((self._at - now) / MEMORY_S) if self._level else 0.0

    def retry_after(self, waiting: int, now: float) -> float:
        """Seconds until `waiting` tickets will have left, at this rate, between 1 and 60; 5 while nothing moves."""
        rate = self.per_second(now)
        if rate * LATEST_S < 1:
            return UNKNOWN_S
        return min(max(waiting / rate, SOONEST_S), LATEST_S)

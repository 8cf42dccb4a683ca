"""How many dispatches of a service may be repeated: a share of its requests, so that retries cannot feed an overload.

A sliding window of ten seconds in one-second steps. `floor` retries are always allowed in a window, or a service with
little traffic could not survive the death of one worker.
"""

from collections import deque

WINDOW_S = 10
FLOOR = 100


class RetryBudget:
    """Counts requests and retries by the second."""

    def __init__(self, share: float, floor: int = FLOOR) -> None:
        self._share = share
        self._floor = floor
        self._seconds: deque[list[int]] = deque()  # [second, requests, retries]

    def request(self, now: float) -> None:
        """A request was admitted."""
        self._second(now)[1] += 1

    def take(self, now: float) -> bool:
        """Whether one more retry is allowed now; it counts as made if so."""
        second = self._second(now)
        requests = sum(entry[1] for entry in self._seconds)
        retries = sum(entry[2] for entry in self._seconds)
        allowed = retries + 1 <= max(self._floor, self._share * requests)
        second[2] += allowed
        return allowed

    def _second(self, now: float) -> list[int]:
        second = int(now)
        while self._seconds and self._seconds[0][0] <= second - WINDOW_S:
            self._seconds.popleft()
        if not self._seconds or self._seconds[-1][0] != second:
            self._seconds.append([second, 0, 0])
        return self._seconds[-1]

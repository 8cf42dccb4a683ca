"""Which requests can no longer have their first token in time: a heap whose stale entries fall out at the top.

A waiting request is due when its own service would end past its deadline, a running one at the deadline itself.
"""

import heapq
from collections.abc import Callable, Iterator
from itertools import count

from paceline_workers.engine.scheduling.request import Request, RequestStatus


class Deadlines:
    """Requests with a deadline that have not begun. `latest` tells until when one may stay as it is."""

    def __init__(self, latest: Callable[[Request], float]) -> None:
        self._latest = latest
        self._heap: list[tuple[float, int, Request]] = []
        self._order = count()

    def add(self, request: Request) -> None:
        """Watch a request, if it has a deadline."""
        if request.deadline is not None:
            heapq.heappush(self._heap, (self._latest(request), next(self._order), request))

    def next(self) -> float | None:
        """When the next one may be due."""
        while self._heap and not self._open(self._heap[0][2]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def due(self, now: float) -> Iterator[Request]:
        """Take out those that are too late; one that has come on since is watched on."""
        while (time := self.next()) is not None and time <= now:
            request = heapq.heappop(self._heap)[2]
            if self._latest(request) <= now:
                yield request
            else:
                self.add(request)

    @staticmethod
    def _open(request: Request) -> bool:
        return request.state is not RequestStatus.DONE and request.first_token is None

"""Which requests must have their first token by when: a heap whose stale entries fall out at the top."""

import heapq
from collections.abc import Iterator
from itertools import count

from paceline_workers.engine.scheduling.request import Request, State


class Deadlines:
    """Requests with a deadline that have not begun."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Request]] = []
        self._order = count()

    def add(self, request: Request) -> None:
        """Watch a request, if it has a deadline."""
        if request.deadline is not None:
            heapq.heappush(self._heap, (request.deadline, next(self._order), request))

    def next(self) -> float | None:
        """The nearest deadline of a request that has not begun."""
        while self._heap and not self._open(self._heap[0][2]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def due(self, now: float) -> Iterator[Request]:
        """Take out those that are too late."""
        while (deadline := self.next()) is not None and deadline <= now:
            yield heapq.heappop(self._heap)[2]

    @staticmethod
    def _open(request: Request) -> bool:
        return request.state is not State.DONE and request.first_token is None

"""Requests that hold no pages yet, or no more: one queue a class, first come, first served, preempted ones in place."""

from bisect import insort
from collections import deque
from operator import attrgetter

from paceline_core.registry.enums import RequestClass
from paceline_workers.engine.scheduling.request import Request


class Waiting:
    """The queues, and when each class had its last turn."""

    def __init__(self) -> None:
        self._queues: dict[RequestClass, deque[Request]] = {name: deque() for name in RequestClass}
        self._last_turn: dict[RequestClass, float] = {}

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def add(self, request: Request) -> None:
        """Queue by arrival: at the end when new, near the front when preempted."""
        insort(self._queues[request.request_class], request, key=attrgetter("arrival"))

    def head(self, name: RequestClass) -> Request | None:
        """The next of a class."""
        queue = self._queues[name]
        return queue[0] if queue else None

    def admit(self, request: Request, now: float) -> None:
        """Take out the head of its class."""
        self._queues[request.request_class].popleft()
        self._last_turn[request.request_class] = now

    def remove(self, request: Request) -> None:
        """Take out any."""
        self._queues[request.request_class].remove(request)

    def turns(self, now: float) -> dict[RequestClass, float]:
        """Seconds since each class with waiting requests had something admitted, or began to wait."""
        heads = {name: queue[0].arrival for name, queue in self._queues.items() if queue}
        return {name: now - max(arrival, self._last_turn.get(name, arrival)) for name, arrival in heads.items()}

    def heads(self) -> list[Request]:
        """The oldest request of each class that has one."""
        return [queue[0] for queue in self._queues.values() if queue]

    def counts(self) -> dict[RequestClass, int]:
        """Requests by class."""
        return {name: len(queue) for name, queue in self._queues.items()}

    def tokens(self) -> dict[RequestClass, int]:
        """Tokens by class that have yet to be computed, prefix hits not foreseen."""
        return {name: sum(request.gap for request in queue) for name, queue in self._queues.items()}

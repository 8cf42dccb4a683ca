"""Which of the workers that could take a request does. Policies are interchangeable: one method, plain data."""

from collections.abc import Sequence
from typing import Protocol

from paceline_gateway.routing.worker import Worker


class Policy(Protocol):
    """Picks from at least one worker; every one of them has room."""

    def pick(self, workers: Sequence[Worker], prompt_tokens: int) -> Worker:
        """The worker that takes a prompt of this many tokens."""
        ...


class LeastWork:
    """Least estimated work in seconds; equals take turns, the emptier first."""

    def pick(self, workers: Sequence[Worker], prompt_tokens: int) -> Worker:
        """The worker whose next step would be shortest with this prompt in it."""
        return min(workers, key=lambda worker: (worker.cost(prompt_tokens), worker.in_flight, worker.picked))

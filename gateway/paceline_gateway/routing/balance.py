"""Who has had more than its share of the work: the guard against hot spots.

Work is counted in seconds by each worker's own step-time model, so a slow worker's share is smaller in tokens, and it
fades with MEMORY_S. A worker is hot when it has had more than LIMIT times the mean and SLACK_S more: then nothing that
it has cached speaks for it, and among equals it is the last. So affinity alone never takes a worker beyond LIMIT x
mean + SLACK_S + one request.
Whoever joins starts at the mean: it must not be given everything until it has caught up.

Instead of letting every sum fade, what is added grows; the sums are scaled down together now and then.
"""

from collections.abc import Collection
from math import exp

from paceline_gateway.routing.worker import Worker

LIMIT = 1.1
SLACK_S = 0.5
MEMORY_S = 30.0
_RESCALE_S = 600.0
_MOST = 700.0
"""What `exp` can still take; after so long a silence every sum is nothing anyway."""


class HotSpotGuard:
    """Over the workers that are handed in; each keeps its own sum. `now` is monotonic seconds."""

    def __init__(self) -> None:
        self._since: float | None = None

    def add(self, worker: Worker, seconds: float, now: float, others: Collection[Worker]) -> None:
        """Work was dispatched."""
        worker.work += seconds * self._growth(now, others)

    def joined(self, worker: Worker, others: Collection[Worker]) -> None:
        """It starts where the others are."""
        worker.work = sum(other.work for other in others) / len(others) if others else 0.0

    def line(self, workers: Collection[Worker], now: float) -> float:
        """The sum above which a worker is hot."""
        growth = self._growth(now, workers)
        mean = sum(worker.work for worker in workers) / len(workers) if workers else 0.0
        return LIMIT * mean + SLACK_S * growth

    def _growth(self, now: float, workers: Collection[Worker]) -> float:
        if self._since is None:
            self._since = now
        growth = exp(min((now - self._since) / MEMORY_S, _MOST))
        if now - self._since <= _RESCALE_S:
            return growth
        self._since = now
        for worker in workers:
            worker.work /= growth
        return 1.0

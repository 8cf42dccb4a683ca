"""Counts here what other gateways serve a tenant: each reports what it served, and gets the sums of all. Pure.

A gateway reports differences, never sums, so that no report overwrites another. The growth of a sum beyond this
gateway's own report is the others' service. PART of it is charged to the tenant's counter here: with all of it, the
requests of a tenant that is served enough elsewhere would wait here past their deadlines.

Error bound: what the others serve between two exchanges is unknown here. So of two tenants that always wait, one may be
served more, by what the other gateways serve between two exchanges, beyond the difference that one queue allows.
After a failed exchange the next sums are a new baseline: what was served meanwhile is not charged, and each gateway is
fair only to what it serves itself. A sum that fell has been reset.
"""

from collections.abc import Callable, Mapping

from paceline_gateway.queueing.fair_queue import FairQueue

PART = 0.75
MAX_REPORTED = 1024
"""The most tenants in one exchange, over all queues; those with the largest amounts go first."""
Queues = Callable[[], Mapping[str, FairQueue]]
"""All queues by name; a name has no line feed and is the same at every gateway."""


class SharedFairness:
    """One gateway's side of the exchange. A key is the queue's and the tenant's name, joined by a line feed."""

    def __init__(self, queues: Queues) -> None:
        self._queues = queues
        self._reported: dict[str, float] = {}
        self._sums: dict[str, float] | None = None

    def report(self) -> dict[str, float]:
        """What was served here since the last call, in tokens over weight, by key."""
        fresh = [
            (f"{name}\n{tenant}", served)
            for name, queue in self._queues().items()
            for tenant, served in queue.taken().items()
        ]
        fresh.sort(key=lambda entry: -abs(entry[1]))
        self._reported = dict(fresh[:MAX_REPORTED])
        return self._reported

    def heard(self, sums: Mapping[str, float]) -> None:
        """Take the sums of all gateways; they include the last report."""
        previous, queues = self._sums, self._queues()
        self._sums = dict(sums)
        if previous is None:
            return
        for name, total in sums.items():
            queue, _, tenant = name.partition("\n")
            before = previous.get(name, 0.0)
            others = total - before - self._reported.get(name, 0.0)
            if queue in queues and total >= before and others > 0:
                queues[queue].elsewhere(tenant, PART * others)

    def lost(self) -> None:
        """The exchange failed, or there is no other gateway."""
        self._sums = None

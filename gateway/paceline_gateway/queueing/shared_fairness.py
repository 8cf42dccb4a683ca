"""What other gateways serve a tenant counts here too: each tells what it served, and hears the sums of all. Pure.

A gateway tells differences, never sums, so that nobody's word replaces another's. What a sum has grown by beyond what
was told from here is the others' service, and is charged to the tenant's counter here, by PART of it: with all of it, a
tenant that is served enough elsewhere would have its requests here wait until they are too late.

Error bound: what the others serve between two exchanges is not known here, so of two tenants who always wait, one may
be served more by what one exchange's time lets the other gateways serve, beside what one gateway's own queue allows.
After a failed exchange the sums are taken as they are: what was served meanwhile is counted nowhere, and each gateway
is fair to what it sees. A sum that fell was begun anew.
"""

from collections.abc import Callable, Mapping

from paceline_gateway.queueing.fair_queue import FairQueue

PART = 0.75
MAX_REPORTED = 1024
"""Tenants that one exchange speaks of, over all queues; those of whom most is to be told go first."""
Queues = Callable[[], Mapping[str, FairQueue]]
"""All queues by a name without a line feed, the same at every gateway."""


class SharedFairness:
    """One gateway's part. Names are those of the queue and of the tenant, joined by a line feed."""

    def __init__(self, queues: Queues) -> None:
        self._queues = queues
        self._reported: dict[str, float] = {}
        self._sums: dict[str, float] | None = None

    def report(self) -> dict[str, float]:
        """Tokens over weight served here since this was last asked, by name."""
        fresh = [
            (f"{name}\n{tenant}", served)
            for name, queue in self._queues().items()
            for tenant, served in queue.taken().items()
        ]
        fresh.sort(key=lambda entry: -abs(entry[1]))
        self._reported = dict(fresh[:MAX_REPORTED])
        return self._reported

    def heard(self, sums: Mapping[str, float]) -> None:
        """The sums of all, in which is what was told last."""
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
        """The exchange failed, or there is nobody to share with."""
        self._sums = None

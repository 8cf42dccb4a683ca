"""What each tenant has been served, and which is next: virtual token counters (VTC, Sheng et al. 2024).

A counter is service in tokens divided by the tenant's weight. The active tenant (one with a waiting request) with the
least counter is next. `time` is virtual time: the least counter of the active tenants, and it never falls; while none
is active, the counter of the last one. A tenant that becomes active is lifted to `time` less a credit. VTC lifts it to
`time` itself: then a tenant that uses only a part of its share waited behind all others whenever two of its requests
came close together. The credit (as for sleepers in Linux' fair scheduler) lets it take a little at once; a tenant that
has used it gets it again only after the others were served as much. Using capacity that is free costs nothing later.

So with requests that cost at most U over weight and a credit of C, all active counters are within [time - C, time + U],
and of two tenants that both wait all the time, none is served more than 2 U + C beyond the other.

Every step is O(log tenants): a heap whose outdated entries are dropped when they come up. At most IDLE counters of idle
tenants are kept; the tenant that has been idle longest is forgotten, and counts as new when it returns.
"""

import heapq
from collections import OrderedDict
from itertools import count

IDLE = 4096
_Entry = tuple[float, int, int, str]


class VirtualTokenCounters:
    """One queue's counters."""

    def __init__(self) -> None:
        self._heap: list[_Entry] = []
        self._active: dict[str, _Entry] = {}
        self._weights: dict[str, int] = {}
        self._idle: OrderedDict[str, float] = OrderedDict()
        self._order = count()
        self.time = 0.0
        """Virtual time, in tokens over weight."""
        self.weight = 0
        """The sum over all active tenants."""

    def __len__(self) -> int:
        return len(self._active)

    @property
    def spread(self) -> float:
        """The difference between the most and the least served active tenant, in tokens over weight."""
        counters = [entry[0] for entry in self._active.values()]
        return max(counters) - min(counters) if counters else 0.0

    def counter(self, tenant: str) -> float:
        """A tenant's counter; 0 for an unknown tenant."""
        entry = self._active.get(tenant)
        return self._idle.get(tenant, 0.0) if entry is None else entry[0]

    def enter(self, tenant: str, weight: int, credit: float = 0.0) -> None:
        """The tenant's first waiting request arrived; its counter may be behind the others by `credit`."""
        if tenant in self._active:
            return
        self._weights[tenant] = weight
        self.weight += weight
        self._put(tenant, max(self._idle.pop(tenant, 0.0), self.time - credit), served=0)
        self._advance()

    def leave(self, tenant: str) -> None:
        """The tenant's last waiting request left."""
        counter = self._idle[tenant] = self._active.pop(tenant)[0]
        self.weight -= self._weights.pop(tenant)
        if self._active:
            self._advance()
        else:
            self.time = max(self.time, counter)
        self._forget()

    def pass_by(self, tenant: str, tokens: float, weight: int, credit: float = 0.0) -> None:
        """Serve a tenant while none waits: as if it had entered, been charged and left."""
        counter = max(self._idle.pop(tenant, 0.0), self.time - credit) + tokens / weight
        self._idle[tenant] = counter
        self.time = max(self.time, counter)
        self._forget()

    def charge(self, tenant: str, tokens: float, weight: int) -> None:
        """Add service to a tenant's counter; negative to correct an earlier charge."""
        if tenant in self._active:
            self._put(tenant, self._active[tenant][0] + tokens / weight, served=1)
            self._advance()
        elif tenant in self._idle:
            self._idle[tenant] += tokens / weight

    def first(self, most: int, within: float = 0.0) -> list[str]:
        """The next tenant and up to `most` in all that were served at most `within` more, in order."""
        found: list[_Entry] = []
        while self._heap and len(found) < most:
            entry = heapq.heappop(self._heap)
            if self._active.get(entry[3]) is not entry:
                continue
            found.append(entry)
            if entry[0] > found[0][0] + within:
                break
        for entry in found:
            heapq.heappush(self._heap, entry)
        return [entry[3] for entry in found if entry[0] <= found[0][0] + within]

    def _forget(self) -> None:
        if len(self._idle) > IDLE:
            self._idle.popitem(last=False)

    def _advance(self) -> None:
        """Advance virtual time to the least counter."""
        while self._heap and self._active.get(self._heap[0][3]) is not self._heap[0]:
            heapq.heappop(self._heap)
        if self._heap:
            self.time = max(self.time, self._heap[0][0])

    def _put(self, tenant: str, counter: float, *, served: int) -> None:
        """Set a counter; of equal ones, a tenant that has just become active goes first."""
        entry = self._active[tenant] = (counter, served, next(self._order), tenant)
        heapq.heappush(self._heap, entry)
        if len(self._heap) > 2 * len(self._active) + 64:
            self._heap = list(self._active.values())
            heapq.heapify(self._heap)

"""One tenant's waiting requests in one class: those that can still be in time first, then those that are overdue.

Both are first come, first served. An overdue request misses its target whatever happens, and those that waited for it
would miss theirs. It does not starve: once OVERTAKEN requests of the tenant have gone before the first overdue one, it
is next.
"""

from collections import OrderedDict
from collections.abc import Iterable

from paceline_gateway.queueing.queued_request import QueuedRequest

OVERTAKEN = 8


class TenantQueue:
    def __init__(self) -> None:
        self._in_time: OrderedDict[int, QueuedRequest] = OrderedDict()
        self._overdue: OrderedDict[int, QueuedRequest] = OrderedDict()

    def __bool__(self) -> bool:
        return bool(self._in_time or self._overdue)

    def __contains__(self, queued: QueuedRequest) -> bool:
        return queued.id in self._in_time or queued.id in self._overdue

    @property
    def in_time(self) -> bool:
        """Whether any of them can still be in time."""
        return bool(self._in_time)

    @property
    def candidates(self) -> Iterable[QueuedRequest]:
        """Those of which one is next, in order."""
        starving = next(iter(self._overdue.values()), None)
        if not self._in_time or (starving is not None and starving.overtaken >= OVERTAKEN):
            return self._overdue.values()
        return self._in_time.values()

    @property
    def first(self) -> QueuedRequest:
        return next(iter(self.candidates))

    @property
    def newest(self) -> QueuedRequest:
        """The last to join: of those in time, else of all."""
        return next(reversed((self._in_time or self._overdue).values()))

    def join(self, queued: QueuedRequest) -> None:
        self._in_time[queued.id] = queued

    def leave(self, queued: QueuedRequest) -> None:
        if self._in_time.pop(queued.id, None) is None:
            del self._overdue[queued.id]

    def set_overdue(self, queued: QueuedRequest) -> None:
        """It lets the others go first from now on."""
        if self._in_time.pop(queued.id, None) is not None:
            queued.overtaken = 0
            self._overdue[queued.id] = queued

    def overtake(self, queued: QueuedRequest) -> None:
        """This request goes: count it against the first of either kind if that is another one."""
        for waiting in (self._in_time, self._overdue):
            first = next(iter(waiting.values()), queued)
            first.overtaken += first is not queued

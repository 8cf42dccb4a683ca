"""Which key is worked on next: each key is queued once, the most urgent first, the oldest on a tie.

`PriorityQueue` is pure: time is an argument. A key is in at most one of four states: absent, waiting, running, or due
later. What arrives while a key runs makes it wait again afterwards, so no two workers hold one key and nothing is lost.
A failed key is retried after a pause that doubles; only a deletion, a change of scale or an edit ends the pause early,
because the echo of our own failure must not. The number of objects bounds the number of keys. Of the keys that lack one
right (or credentials), `PROBES` are retried within `REFUSED_PAUSE_S`, and the first that gets further wakes all the
others: a restored right takes effect within seconds, and one that stays missing costs little more for a thousand keys
than for two. Known hole: strict priority, so an endless storm of edits would keep resyncs waiting; the health probe
reports that.
"""

import asyncio
import heapq
from collections import deque
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import islice

from paceline_core.clock import Clock
from paceline_core.kube import ObjectKey

MIN_PAUSE_S = 0.5
MAX_PAUSE_S = 120.0
REFUSED_PAUSE_S = 10.0
PROBES = 2


class Priority(IntEnum):
    """Why a key must be looked at; lower is sooner."""

    DELETE = 0
    """Deletions and changes of scale."""
    EDIT = 1
    """Others changed the spec or a child."""
    STATUS = 2
    """Something that we report has changed."""
    CREATE = 3
    """An object seen for the first time."""
    RESYNC = 4
    """Nothing is known to have changed."""


@dataclass(frozen=True, slots=True, order=True)
class ReconcileKey:
    """The subject of a pass: a kind and an object's place."""

    kind: str
    key: ObjectKey


@dataclass(slots=True)
class _Place:
    """One key: waiting `since`, perhaps for the end of its own pass; `due`: postponed; `paused`: after a failure."""

    priority: Priority = Priority.RESYNC
    since: float | None = None
    ticket: int = 0
    running: bool = False
    due: float | None = None
    paused: bool = False
    failures: int = 0
    refused: str = ""
    later: Priority = Priority.RESYNC
    taken: Priority = Priority.RESYNC

    @property
    def waits(self) -> bool:
        return self.since is not None and not self.running


@dataclass(slots=True)
class PriorityQueue:
    _places: dict[ReconcileKey, _Place] = field(default_factory=dict)
    _ready: list[tuple[Priority, int, ReconcileKey]] = field(default_factory=list)
    _later: list[tuple[float, int, ReconcileKey]] = field(default_factory=list)
    _refused: dict[str, dict[ReconcileKey, None]] = field(default_factory=dict)
    _tickets: int = 0

    def add(self, item: ReconcileKey, priority: Priority, now: float) -> None:
        """Queue a key; one that already waits keeps the more urgent of its reasons."""
        place = self._places.setdefault(item, _Place())
        if place.paused and priority > Priority.EDIT:
            place.later = min(place.later, priority)
            return
        place.due, place.paused = None, False
        if place.since is None:
            place.since, place.priority = now, priority
        elif priority < place.priority:
            place.priority = priority
        else:
            return
        if not place.running:
            self._enter(item, place)

    def take(self, now: float, limit: Priority = Priority.RESYNC) -> ReconcileKey | None:
        """The next key that is at least as urgent as `limit`; the caller must call `done` or `failed` afterwards."""
        if not self.waits(now, limit):
            return None
        _, _, item = heapq.heappop(self._ready)
        place = self._places[item]
        place.since, place.running, place.taken = None, True, place.priority
        return item

    def done(self, item: ReconcileKey, now: float, again_s: float | None = None) -> None:
        place = self._places[item]
        self._not_refused(item, place, "", now)
        place.running, place.failures, place.later = False, 0, Priority.RESYNC
        if place.since is not None:
            self._enter(item, place)
        elif again_s is not None:
            self._postpone(item, place, now + again_s)
        else:
            del self._places[item]

    def failed(self, item: ReconcileKey, now: float, after_s: float | None = None, refused: str = "") -> float:
        """A pass failed; returns the pause before the next one, at least `after_s`. `refused`: the missing right."""
        place = self._places[item]
        self._not_refused(item, place, refused, now)
        place.running, place.failures = False, place.failures + 1
        pause = backoff_s(place.failures)
        if refused:
            place.refused = refused
            together = self._refused.setdefault(refused, {})
            together.setdefault(item)
            probe = item in islice(together, PROBES)
            pause = backoff_s(place.failures, REFUSED_PAUSE_S if probe else MAX_PAUSE_S)
        pause = max(pause, after_s or 0.0)
        if place.since is not None and place.priority <= Priority.EDIT:
            self._enter(item, place)
            return 0.0
        if place.since is not None:
            place.later, place.since = min(place.later, place.priority), None
        place.paused = True
        self._postpone(item, place, now + pause)
        return pause

    def due(self) -> float | None:
        while self._later:
            moment, _, item = self._later[0]
            place = self._places.get(item)
            if place is not None and place.due == moment:
                return moment
            heapq.heappop(self._later)
        return None

    def priority(self, item: ReconcileKey) -> Priority:
        return self._places[item].taken

    def failures(self, item: ReconcileKey) -> int:
        place = self._places.get(item)
        return place.failures if place else 0

    def waits(self, now: float, limit: Priority = Priority.RESYNC) -> bool:
        self._wake(now)
        while self._ready:
            priority, ticket, item = self._ready[0]
            place = self._places.get(item)
            if place is not None and place.ticket == ticket and place.waits:
                return priority <= limit
            heapq.heappop(self._ready)
        return False

    @property
    def depth(self) -> int:
        return sum(place.waits for place in self._places.values())

    def oldest_s(self, now: float) -> float:
        """The longest wait of a key that no worker has taken."""
        places = self._places.values()
        return max((now - place.since for place in places if place.since is not None and place.waits), default=0.0)

    def _not_refused(self, item: ReconcileKey, place: _Place, refused: str, now: float) -> None:
        """A pass got beyond an earlier refusal, or was refused for something else: others may get further too."""
        if not place.refused or place.refused == refused:
            return
        together = self._refused.pop(place.refused)
        place.refused = ""
        for other in together:
            waiting = self._places[other]
            if other != item and waiting.paused:
                waiting.due = now
                self._tickets += 1
                heapq.heappush(self._later, (now, self._tickets, other))
            waiting.refused = ""

    def _wake(self, now: float) -> None:
        while (moment := self.due()) is not None and moment <= now:
            _, _, item = heapq.heappop(self._later)
            place = self._places[item]
            place.due, place.paused = None, False
            place.since, place.priority = moment, place.later
            self._enter(item, place)

    def _enter(self, item: ReconcileKey, place: _Place) -> None:
        self._tickets += 1
        place.ticket = self._tickets
        heapq.heappush(self._ready, (place.priority, place.ticket, item))

    def _postpone(self, item: ReconcileKey, place: _Place, moment: float) -> None:
        self._tickets += 1
        place.due = moment
        heapq.heappush(self._later, (moment, self._tickets, item))


def backoff_s(failures: int, max_s: float = MAX_PAUSE_S) -> float:
    """Seconds between the n-th failure in a row and the next try: 0.5, 1, 2 ... 120."""
    return min(MIN_PAUSE_S * 2.0 ** (min(failures, 32) - 1), max_s)


class WorkQueue:
    """The backlog, awaitable. Waiters wake in order of arrival."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiters: deque[tuple[Priority, asyncio.Future[None]]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self.backlog = PriorityQueue()

    @property
    def idle(self) -> int:
        return sum(limit is Priority.RESYNC for limit, _ in self._waiters)

    def put(self, item: ReconcileKey, priority: Priority) -> None:
        self.backlog.add(item, priority, self._clock.monotonic())
        self._wake_worker()

    async def get(self, limit: Priority = Priority.RESYNC) -> ReconcileKey:
        while True:
            item = self.backlog.take(self._clock.monotonic(), limit)
            if item is not None:
                self._wake_worker()
                return item
            waiter = asyncio.get_running_loop().create_future()
            entry = (limit, waiter)
            self._waiters.append(entry)
            self._arm()
            try:
                await waiter
            except asyncio.CancelledError:
                if entry in self._waiters:
                    self._waiters.remove(entry)
                self._wake_worker()  # it may have been woken for a key already: another worker must take that key
                raise

    def done(self, item: ReconcileKey, again_s: float | None = None) -> None:
        self.backlog.done(item, self._clock.monotonic(), again_s)
        self._wake_worker()

    def failed(self, item: ReconcileKey, after_s: float | None = None, refused: str = "") -> float:
        """A pass failed; returns the pause before the next. `refused`: see `PriorityQueue.failed`."""
        pause = self.backlog.failed(item, self._clock.monotonic(), after_s, refused)
        self._wake_worker()
        return pause

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _wake_worker(self) -> None:
        now = self._clock.monotonic()
        for entry in self._waiters:
            if self.backlog.waits(now, entry[0]):
                self._waiters.remove(entry)
                if not entry[1].done():
                    entry[1].set_result(None)
                break
        self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        moment = self.backlog.due()
        if moment is not None and self._waiters:
            pause = max(moment - self._clock.monotonic(), 0.0)
            self._timer = asyncio.get_running_loop().call_later(pause, self._wake_worker)

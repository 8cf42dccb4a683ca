"""When a write may be made: within the API server's rate, and after a pause if another controller reverts it.

Rate: one token bucket, the most urgent waiter first. Reads do not count: there are few. A 429 with Retry-After stops
every write for that long, because the server reports its own load, not one object's. Invariant: in any T seconds at
most `burst + rate * T` tokens are used.

Conflicts: two operators over one namespace, or a controller that disagrees, would revert each other for ever: every
pass succeeds, so no failure slows them. A new desired object is written at once; one that was written `FREE` times in a
row waits for a pause that doubles, and counts as contested until it stays unchanged for `QUIET_PERIOD_S` after a pause.
Hole: a writer with our own field manager's name is not distinguished from us.
"""

import asyncio
import hashlib
import heapq
import itertools
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import orjson

from paceline_core.clock import Clock
from paceline_core.kube.cluster import Manifest
from paceline_core.process import cancel
from paceline_core.telemetry import get_logger
from paceline_operator.plans.types import MANAGER, Action, Apply, ObjectRef, ObservedChild, PodProblem
from paceline_operator.state.workqueue import MAX_PAUSE_S, Priority, backoff_s

_ROUNDING = 1e-9


@dataclass(slots=True)
class TokenBucket:
    """Tokens that accrue at `rate` a second up to `burst`; pure."""

    rate: float
    burst: float
    tokens: float
    filled_at: float

    def take(self, now: float) -> float:
        """Take one token: 0, or the seconds until one is available."""
        self.tokens = min(self.burst, self.tokens + max(now - self.filled_at, 0.0) * self.rate)
        self.filled_at = max(now, self.filled_at)
        if self.tokens >= 1.0 - _ROUNDING:
            self.tokens -= 1.0
            return 0.0
        return self.filled_at - now + (1.0 - self.tokens) / self.rate

    def stop(self, now: float, seconds: float) -> None:
        self.tokens = min(self.tokens, 0.0)
        self.filled_at = max(self.filled_at, now + seconds)


class WriteRateLimiter:
    def __init__(self, clock: Clock, rate: float, burst: float) -> None:
        self._clock = clock
        self._bucket = TokenBucket(rate, burst, burst, clock.monotonic())
        self._waiters: list[tuple[Priority, int, asyncio.Future[None]]] = []
        self._tickets = itertools.count()
        self._serving: asyncio.Task[None] | None = None

    async def spend(self, priority: Priority) -> None:
        if not self._waiters and self._bucket.take(self._clock.monotonic()) == 0.0:
            return
        turn = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiters, (priority, next(self._tickets), turn))
        if self._serving is None:
            self._serving = asyncio.create_task(self._serve())
        await turn

    def stop(self, seconds: float) -> None:
        self._bucket.stop(self._clock.monotonic(), seconds)

    async def close(self) -> None:
        if self._serving is not None:
            await cancel(self._serving)

    async def _serve(self) -> None:
        try:
            while self._waiters:
                if self._waiters[0][2].done():
                    heapq.heappop(self._waiters)
                    continue
                pause = self._bucket.take(self._clock.monotonic())
                if pause > 0.0:
                    await self._clock.sleep(pause)
                    continue
                heapq.heappop(self._waiters)[2].set_result(None)
        finally:
            self._serving = None


FREE = 3
QUIET_PERIOD_S = 60.0
FIELD_MANAGER_CONFLICT = "FieldManagerConflict"
_REMEMBERED = 4096
_log = get_logger(__name__)


@dataclass(slots=True)
class _Conflict:
    """A desired object, how often in a row it was written, when last, and the manager that had changed it."""

    desired: bytes
    times: int
    last: float
    by: str

    @property
    def free_at(self) -> float:
        return self.last + (backoff_s(self.times) if self.times >= FREE else 0.0)


class ConflictBackoff:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._conflicts: OrderedDict[ObjectRef, _Conflict] = OrderedDict()

    def wait_s(self, place: ObjectRef, desired: Manifest) -> float:
        """Seconds until this may be written there; 0 for now."""
        conflict = self._current(place)
        return (
            max(conflict.free_at - self._clock.monotonic(), 0.0)
            if conflict and conflict.desired == _digest(desired)
            else 0.0
        )

    def due(self, actions: Sequence[Action]) -> tuple[list[Action], float | None]:
        """The actions that need not wait, and how long the others must."""
        waits = [
            self.wait_s(action.child.place, action.child.body) if isinstance(action, Apply) else 0.0
            for action in actions
        ]
        due = [action for action, wait in zip(actions, waits, strict=True) if not wait]
        return due, min((wait for wait in waits if wait), default=None)

    def acted(self, actions: Iterable[Action], children: Mapping[ObjectRef, ObservedChild]) -> None:
        for action in actions:
            if isinstance(action, Apply):
                live = children.get(action.child.place)
                self.wrote(action.child.place, action.child.body, live.changed_by if live else "")

    def wrote(self, place: ObjectRef, desired: Manifest, by: str = "") -> None:
        conflict, digest, now = self._current(place), _digest(desired), self._clock.monotonic()
        times = conflict.times + 1 if conflict and conflict.desired == digest else 1
        self._conflicts[place] = _Conflict(digest, times, now, by)
        self._conflicts.move_to_end(place)
        if times == FREE + 1:
            _log.warning(
                "another controller keeps reverting an object",
                extra={"object": f"{place[0]} {place[1]}", "reason": _text(place, by)},
            )
        if len(self._conflicts) > _REMEMBERED:
            self._conflicts.popitem(last=False)

    def problems(self, places: Iterable[ObjectRef]) -> tuple[PodProblem, ...]:
        found = {place: conflict.by for place in places if (conflict := self._current(place)) and conflict.times > FREE}
        return tuple(PodProblem(FIELD_MANAGER_CONFLICT, _text(place, found[place])) for place in sorted(found))

    def quiet_s(self, places: Iterable[ObjectRef]) -> float | None:
        now, conflicts = self._clock.monotonic(), [self._current(place) for place in places]
        return min(
            (conflict.free_at + QUIET_PERIOD_S - now for conflict in conflicts if conflict and conflict.times > FREE),
            default=None,
        )

    def _current(self, place: ObjectRef) -> _Conflict | None:
        conflict = self._conflicts.get(place)
        if conflict is not None and self._clock.monotonic() >= conflict.free_at + QUIET_PERIOD_S:
            del self._conflicts[place]
            return None
        return conflict


def _digest(desired: Manifest) -> bytes:
    return hashlib.blake2b(orjson.dumps(desired, option=orjson.OPT_SORT_KEYS), digest_size=12).digest()


def _text(place: ObjectRef, by: str) -> str:
    other = by or f"another writer named {MANAGER}, perhaps a second install of paceline, or is deleted each time"
    return (
        f"{place[0]} {place[1].name} is changed again and again by {other}; it is restored, "
        f"with pauses of up to {MAX_PAUSE_S:.0f} s. Let only one of the two write it"
    )

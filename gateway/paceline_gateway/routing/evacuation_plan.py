"""Which streams leave a worker that drains, and when: its end need not wait for the longest answer. Pure.

Once a worker has drained for GRACE_S, its streams go on at ready workers of its own revision: those first of which the
least has to be computed again, as many at a time as the others have free slots, memory and time for (`lookahead_s` of
prompt work each), the next ones when these have left. A stream does not move while a request as urgent waits: that one
has had nothing yet. What cannot move ends where it is. Known hole: what other gateways move at the same moment is seen
with the next reports only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from paceline_core.registry.enums import RequestClass
from paceline_gateway.routing.worker import PLACES, Worker
from paceline_gateway.routing.worker_pool import WorkerPool

GRACE_S = 1.0
"""Who ends so soon by itself is left alone."""
AGAIN_S = 5.0
"""Who was asked to leave and is still there so long after may be asked again."""
FULL = 0.9
"""Share of its KV memory that a worker may come to hold by what is moved there."""


class MovableStream(NamedTuple):
    """One that could go on elsewhere; `tokens` would have to be computed there."""

    number: int
    request_class: RequestClass
    tokens: int


@dataclass(slots=True)
class TargetCapacity:
    """What one worker can still take of what moves now."""

    worker: Worker
    reserved: int
    seconds: float
    taken: int = 0
    tokens: int = 0

    def holds(self, stream: MovableStream) -> bool:
        """Whether there is room for this stream."""
        free = self.worker.open_to(PLACES[stream.request_class], self.reserved) - self.worker.in_flight - self.taken
        return free > 0 and self.seconds > 0 and self.worker.fullness(self.tokens + stream.tokens) <= FULL

    def take(self, stream: MovableStream) -> None:
        """It goes there, as far as can be known."""
        self.taken += 1
        self.tokens += stream.tokens
        self.seconds -= self.worker.prefill_s(stream.tokens)


class EvacuationPlanner:
    """One service's. `lookahead_s`: prompt work that a worker may be given ahead of time."""

    def __init__(self, lookahead_s: float) -> None:
        self._lookahead_s = lookahead_s
        self._since: dict[str, float] = {}
        self._asked: dict[int, float] = {}

    def leaving(self, pool: WorkerPool, now: float) -> list[Worker]:
        """Workers whose streams should go on elsewhere by now."""
        draining = pool.draining()
        self._since = {worker.name: self._since.get(worker.name, now) for worker in draining}
        return [worker for worker in draining if now >= self._since[worker.name] + GRACE_S]

    def due(
        self,
        pool: WorkerPool,
        streams: Mapping[Worker, Sequence[MovableStream]],
        waiting: Mapping[RequestClass, int],
        now: float,
    ) -> dict[Worker, list[int]]:
        """Whom to ask to leave now: numbers by worker. `streams`: what could move, of each that is leaving."""
        there = {stream.number for own in streams.values() for stream in own}
        self._asked = {t: at for t, at in self._asked.items() if t in there and now < at + AGAIN_S}
        if self._asked:
            return {}
        ready = pool.ready(now)
        reserved = -(-pool.reserved // len(ready)) if ready else 0
        rooms = [TargetCapacity(worker, reserved, self._lookahead_s - worker.backlog_s) for worker in ready]
        urgent = min((PLACES[name] for name in waiting if waiting[name]), default=inf)
        chosen = {
            worker: _placed(
                [stream for stream in own if PLACES[stream.request_class] < urgent],
                [room for room in rooms if room.worker.endpoint.revision == worker.endpoint.revision],
            )
            for worker, own in streams.items()
        }
        self._asked = {number: now for numbers in chosen.values() for number in numbers}
        return {worker: numbers for worker, numbers in chosen.items() if numbers}


def _placed(streams: Sequence[MovableStream], rooms: Sequence[TargetCapacity]) -> list[int]:
    chosen = []
    for stream in sorted(streams, key=lambda stream: (PLACES[stream.request_class], stream.tokens)):
        room = max((room for room in rooms if room.holds(stream)), key=lambda room: room.seconds, default=None)
        if room is not None:
            room.take(stream)
            chosen.append(stream.number)
    return chosen

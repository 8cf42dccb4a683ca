"""Evacuation: which streams leave a draining worker, and when, so that it need not wait for its longest answer. Pure.

Once a worker has drained for GRACE_S, its streams continue at ready workers of the same revision. Those with the fewest
tokens to recompute move first, as many at a time as the others have free slots, memory and time for (`lookahead_s` of
prompt work each); more follow when these have left. A stream does not move while a request of its class or a more
urgent one waits: that one has had nothing yet. A stream that cannot move ends where it is. Known hole: moves by other
gateways at the same moment show only in the next reports.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from paceline_core.registry.enums import RequestClass
from paceline_gateway.routing.worker import PLACES, Worker
from paceline_gateway.routing.worker_pool import WorkerPool

GRACE_S = 1.0
"""A stream that will end within this time stays."""
AGAIN_S = 5.0
"""A stream that has not left after this time may be asked for again."""
FULL = 0.9
"""The largest share of its KV memory that a worker may come to hold by moved streams."""


class MovableStream(NamedTuple):
    """A stream that could move; the target would have to compute `tokens`."""

    number: int
    request_class: RequestClass
    tokens: int


@dataclass(slots=True)
class TargetCapacity:
    """What one worker can still take in this round."""

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
        """Subtract this stream's estimated needs."""
        self.taken += 1
        self.tokens += stream.tokens
        self.seconds -= self.worker.prefill_s(stream.tokens)


class EvacuationPlanner:
    """Plans one service's evacuations. `lookahead_s`: prompt work that a worker may have in advance."""

    def __init__(self, lookahead_s: float) -> None:
        self._lookahead_s = lookahead_s
        self._since: dict[str, float] = {}
        self._asked: dict[int, float] = {}

    def leaving(self, pool: WorkerPool, now: float) -> list[Worker]:
        """Workers whose streams should move now."""
        leaving = pool.leaving()
        self._since = {worker.name: self._since.get(worker.name, now) for worker in leaving}
        return [worker for worker in leaving if now >= self._since[worker.name] + GRACE_S]

    def due(
        self,
        pool: WorkerPool,
        streams: Mapping[Worker, Sequence[MovableStream]],
        waiting: Mapping[RequestClass, int],
        now: float,
    ) -> dict[Worker, list[int]]:
        """The streams to move now: numbers by worker. `streams`: the movable ones of each draining worker."""
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

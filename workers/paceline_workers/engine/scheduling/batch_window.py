"""When waiting requests may join the batch: at each step (continuous), or in whole batches (dynamic, static).

Continuous: from idle, the first request waits for others as long as the batch window of its class. While requests run,
interactive ones join at once; batch and offline ones when their oldest has waited its window or they fill the free
slots. A window counts from the arrival of the oldest request.
Dynamic and static run a batch to its end before the next one: dynamic closes a batch when `size` requests wait or a
window has passed, static when `size` wait or after STATIC_TIMEOUT_S.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from paceline_core.registry.enums import RequestClass
from paceline_workers.engine.scheduling.plan import SchedulerLimits

STATIC_TIMEOUT_S = 1.0

Windows = Mapping[RequestClass, float]


@dataclass(frozen=True, slots=True)
class BatchState:
    """The oldest arrival and the number of each waiting class, the running requests and the free slots.

    `joined`: how many requests have started to run so far, minus preemptions.
    """

    oldest: Mapping[RequestClass, float]
    counts: Mapping[RequestClass, int]
    running: int
    free: int
    joined: int

    @property
    def waiting(self) -> int:
        return sum(self.counts.values())


class Continuous:
    """Forms a new batch at each step."""

    def __init__(self, windows: Windows) -> None:
        self._windows = windows

    def opens(self, batch: BatchState) -> Mapping[RequestClass, float]:
        """When each waiting class may join, -inf for at once: from idle all together, else each class by itself."""
        if not batch.running:
            first = -inf if batch.waiting >= batch.free else _first(batch.oldest, self._windows)
            return dict.fromkeys(batch.oldest, first)
        joins = {name for name in batch.oldest if name is RequestClass.INTERACTIVE or batch.counts[name] >= batch.free}
        return {
            name: -inf if name in joins else oldest + self._windows.get(name, 0.0)
            for name, oldest in batch.oldest.items()
        }


class Batches:
    """Runs one batch of at most `size` after the other."""

    def __init__(self, size: int, windows: Windows) -> None:
        self._size = size
        self._windows = windows
        self._filled = 0

    def opens(self, batch: BatchState) -> Mapping[RequestClass, float]:
        """Sizes a batch from idle, then admits it over as many steps as its prompts take; inf: until it has ended."""
        if batch.running:
            return dict.fromkeys(batch.oldest, -inf if batch.joined < self._filled else inf)
        self._filled = batch.joined + min(self._size, batch.waiting)
        full = batch.waiting >= self._size
        return dict.fromkeys(batch.oldest, -inf if full else _first(batch.oldest, self._windows))


Batching = Continuous | Batches


def wake(opens: Mapping[RequestClass, float], deadline: float | None) -> float | None:
    """When to plan again while no class may join: when one may, or at the deadline; None: only on new requests."""
    return min((time for time in (*opens.values(), deadline) if time is not None), default=None)


def batching(limits: SchedulerLimits) -> Batching:
    match limits.batching:
        case "dynamic":
            return Batches(limits.max_seqs, limits.windows)
        case "static":
            return Batches(limits.max_seqs, dict.fromkeys(RequestClass, STATIC_TIMEOUT_S))
        case _:
            return Continuous(limits.windows)


def _first(oldest: Mapping[RequestClass, float], windows: Windows) -> float:
    return min((arrival + windows.get(name, 0.0) for name, arrival in oldest.items()), default=inf)

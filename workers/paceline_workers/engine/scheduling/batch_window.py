"""When waiting requests may join: at each step (continuous), or in whole batches (dynamic, static).

Continuous: from idle, the first request waits for others as long as the window of its class; while something runs,
interactive requests join at once, batch and offline ones when their oldest has waited its window or they fill the free
slots. A window counts from arrival, so it has shrunk by the age of its head.
Dynamic and static run a batch to its end before the next one: dynamic closes a batch when `size` requests wait or a
window has passed, static when `size` wait, or after STATIC_TIMEOUT_S.

`BatchWindow` measures how long requests have waited for others, and for nothing else, while nothing ran.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

from paceline_core.registry.enums import RequestClass
from paceline_workers.engine.scheduling.plan import SchedulerLimits, StepPlan
from paceline_workers.engine.scheduling.request import Request

STATIC_TIMEOUT_S = 1.0

Windows = Mapping[RequestClass, float]


class BatchWindow:
    """Opens with the first request that is held, closes with the step that takes it in."""

    def __init__(self) -> None:
        self._since: float | None = None

    def hold(self, opens: Mapping[RequestClass, float], deadline: float | None, now: float) -> StepPlan:
        """An empty plan with the time to plan again. `opens`: when each waiting class may begin."""
        if not opens:
            self._since = None
        elif self._since is None:
            self._since = now
        return StepPlan(wake=min((time for time in (*opens.values(), deadline) if time is not None), default=None))

    def waited(self, request: Request, opened: float, now: float) -> float:
        """Seconds that a window, and nothing else, kept a request waiting; its class may join since `opened`."""
        if self._since is not None:
            return now - max(request.arrival, self._since)
        return max(min(opened, now) - request.arrival, 0.0)

    def close(self, now: float) -> float:
        """A step begins; returns the seconds that it was held."""
        since, self._since = self._since, None
        return 0.0 if since is None else now - since


@dataclass(frozen=True, slots=True)
class BatchState:
    """The oldest arrival and the number of each waiting class, the running requests and the free slots."""

    oldest: Mapping[RequestClass, float]
    counts: Mapping[RequestClass, int]
    running: int
    free: int

    @property
    def waiting(self) -> int:
        return sum(self.counts.values())


class Continuous:
    """The batch is formed anew at each step."""

    def __init__(self, windows: Windows) -> None:
        self._windows = windows

    def opens(self, batch: BatchState) -> Mapping[RequestClass, float]:
        """From when on each waiting class may join, -inf at once: all together from idle, else each by itself."""
        if not batch.running:
            first = -inf if batch.waiting >= batch.free else _first(batch.oldest, self._windows)
            return dict.fromkeys(batch.oldest, first)
        joins = {name for name in batch.oldest if name is RequestClass.INTERACTIVE or batch.counts[name] >= batch.free}
        return {
            name: -inf if name in joins else oldest + self._windows.get(name, 0.0)
            for name, oldest in batch.oldest.items()
        }

    def joined(self, count: int) -> None:
        """A batch that is formed anew has no places to count."""


class Batches:
    """One batch of at most `size` after the other."""

    def __init__(self, size: int, windows: Windows) -> None:
        self._size = size
        self._windows = windows
        self._places = 0
        self._began = False

    def opens(self, batch: BatchState) -> Mapping[RequestClass, float]:
        """Sized from idle, then filled however many steps its prompts take; inf: not while this batch runs."""
        if not batch.running:
            self._began, self._places = False, min(self._size, batch.waiting)
        if self._began:
            return dict.fromkeys(batch.oldest, -inf if self._places > 0 else inf)
        full = batch.waiting >= self._size
        return dict.fromkeys(batch.oldest, -inf if full else _first(batch.oldest, self._windows))

    def joined(self, count: int) -> None:
        """So many have joined; negative: were preempted and may join again."""
        self._began = True
        self._places -= count


Batching = Continuous | Batches


def batching(limits: SchedulerLimits) -> Batching:
    match limits.batching:
        case "dynamic":
            return Batches(limits.slots, limits.windows)
        case "static":
            return Batches(limits.slots, dict.fromkeys(RequestClass, STATIC_TIMEOUT_S))
        case _:
            return Continuous(limits.windows)


def _first(oldest: Mapping[RequestClass, float], windows: Windows) -> float:
    return min((arrival + windows.get(name, 0.0) for name, arrival in oldest.items()), default=inf)

"""When waiting requests may join: at each step (continuous), or in whole batches (dynamic, static).

Continuous: from idle, the first request waits for company as long as the window of its class; while something runs,
interactive requests join at once, batch and offline ones when their oldest has waited its window or they fill the free
slots. A window counts from arrival, so it has shrunk by the age of its head.
Dynamic and static run a batch to its end before the next one: dynamic closes a batch when `size` requests wait or a
window has passed, static when `size` wait, or after PATIENCE, since no wait is without limit.

The batch window that is open: how long requests have waited for company, and nothing else, while nothing ran.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Protocol

from paceline_core.registry.enums import RequestClass
from paceline_workers.engine.scheduling.plan import SchedulerLimits, StepPlan
from paceline_workers.engine.scheduling.request import Request


class BatchWindow:
    """Opens with the first request that is held, closes with the step that takes it in."""

    def __init__(self) -> None:
        self._since: float | None = None

    def hold(self, opens: Mapping[RequestClass, float], deadline: float | None, now: float) -> StepPlan:
        """Nothing yet: a plan that says when to look again. `opens`: when each waiting class may begin."""
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


def shut(opens: Mapping[RequestClass, float], now: float) -> bool:
    """No class may begin yet."""
    return min(opens.values(), default=inf) > now


PATIENCE = 1.0

Windows = Mapping[RequestClass, float]


@dataclass(frozen=True, slots=True)
class BatchState:
    """Who waits and who runs: the oldest arrival and the number of each waiting class."""

    oldest: Mapping[RequestClass, float]
    counts: Mapping[RequestClass, int]
    running: int
    free: int

    @property
    def waiting(self) -> int:
        """Requests of all classes."""
        return sum(self.counts.values())


class Batching(Protocol):
    """What the scheduler asks about joining."""

    def opens(self, house: BatchState) -> Mapping[RequestClass, float]:
        """From when on each waiting class may join: -inf at once, inf not while this batch runs."""
        ...

    def seat(self, count: int) -> None:
        """So many have joined; negative: were preempted and may come back."""
        ...


class Continuous:
    """The batch is formed anew at each step."""

    def __init__(self, windows: Windows) -> None:
        self._windows = windows

    def opens(self, house: BatchState) -> Mapping[RequestClass, float]:
        """One opening for all from idle, one for each class while something runs."""
        if house.running:
            return {name: self._joins(name, house) for name in house.oldest}
        first = -inf if house.waiting >= house.free else _first(house.oldest, self._windows)
        return dict.fromkeys(house.oldest, first)

    def seat(self, count: int) -> None:
        """Nobody counts."""

    def _joins(self, name: RequestClass, house: BatchState) -> float:
        if name is RequestClass.INTERACTIVE or house.counts[name] >= house.free:
            return -inf
        return house.oldest[name] + self._windows.get(name, 0.0)


class Batches:
    """One batch of at most `size` after the other."""

    def __init__(self, size: int, windows: Windows) -> None:
        self._size = size
        self._windows = windows
        self._seats = 0
        self._began = False

    def opens(self, house: BatchState) -> Mapping[RequestClass, float]:
        """A batch is decided from idle, then filled to its seats however many steps its prompts take."""
        if not house.running:
            self._began, self._seats = False, min(self._size, house.waiting)
        if self._began:
            return dict.fromkeys(house.oldest, -inf if self._seats > 0 else inf)
        full = house.waiting >= self._size
        return dict.fromkeys(house.oldest, -inf if full else _first(house.oldest, self._windows))

    def seat(self, count: int) -> None:
        """Seats are taken until none is left."""
        self._began = True
        self._seats -= count


def batching(limits: SchedulerLimits) -> Batching:
    """What the limits name."""
    match limits.batching:
        case "dynamic":
            return Batches(limits.slots, limits.windows)
        case "static":
            return Batches(limits.slots, dict.fromkeys(RequestClass, PATIENCE))
        case _:
            return Continuous(limits.windows)


def _first(oldest: Mapping[RequestClass, float], windows: Windows) -> float:
    return min((arrival + windows.get(name, 0.0) for name, arrival in oldest.items()), default=inf)

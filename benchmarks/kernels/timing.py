"""How kernels are timed: recorded into CUDA graphs, replayed in rounds that each begin with another contestant.

One call of a contestant runs over several copies of its data (`calls`, as the layers of a step do), together larger
than the cache of the GPU, so that what is measured comes from its memory. A graph holds so many calls that the clock's
steps do not count; the launches' cost on the host is left out, as it is in a step that replays: the GPU is kept waiting
until all that is timed lies in its queue.
"""

import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Protocol

import torch
from benchmarks.harness import rotated

LEAST_S = 0.004
WARM = 3
QUEUED = 1_000_000
"""Cycles, about half a millisecond, for which the GPU waits while the host queues what is timed."""
Call = Callable[[], object]
Seconds = Callable[[], float]
"""Of one call of a contestant that was prepared, each time anew."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """Something that is timed: the same work on each of several copies of its data."""

    calls: Sequence[Call]

    def once(self) -> None:
        """All copies, one after another."""
        for call in self.calls:
            call()


class Timer(Protocol):
    """What times a contestant; tests pass one that needs no GPU."""

    def prepare(self, contestant: Contestant) -> Seconds:
        """Do what is done once."""
        ...


class GraphTimer:
    """Replays of CUDA graphs between two events."""

    def prepare(self, contestant: Contestant) -> Seconds:
        """Compile, record a graph that takes LEAST_S at least, and replay it once."""
        for _ in range(WARM):
            contestant.once()
        passes = repeats(_between(_recorded(contestant, 1).replay))
        graph = _recorded(contestant, passes)
        count = passes * len(contestant.calls)
        return lambda: _between(graph.replay) / count


class EventTimer:
    """Calls between two events, for what a graph cannot hold."""

    def prepare(self, contestant: Contestant) -> Seconds:
        """Call it a few times."""
        for _ in range(WARM):
            contestant.once()
        return lambda: _between(contestant.once) / len(contestant.calls)


def repeats(seconds: float) -> int:
    """How many passes of so many seconds take LEAST_S."""
    return ceil(LEAST_S / max(seconds, 1e-6))


def ready(made: Mapping[str, Callable[[], Contestant]], timer: Timer) -> dict[str, tuple[Contestant, Seconds]]:
    """The first, and of the others those that can be made and prepared: why a rival cannot is printed."""
    found: dict[str, tuple[Contestant, Seconds]] = {}
    for name, make in made.items():
        try:
            contestant = make()
            found[name] = contestant, timer.prepare(contestant)
        except Exception:
            if not found:
                raise
            traceback.print_exc()
    return found


def rounds(prepared: Mapping[str, Seconds], count: int) -> dict[str, list[float]]:
    """Seconds of each contestant's call, round by round."""
    times: dict[str, list[float]] = {name: [] for name in prepared}
    for turn in range(count):
        for name in rotated(list(prepared), turn):
            times[name].append(prepared[name]())
    return times


def ratios(over: Sequence[float], under: Sequence[float]) -> list[float]:
    """Round by round, so that what disturbs a round disturbs both."""
    return [one / other for one, other in zip(over, under, strict=True)]


def _recorded(contestant: Contestant, passes: int) -> torch.cuda.CUDAGraph:
    """A graph of so many passes, replayed once."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(passes):
            contestant.once()
    graph.replay()
    return graph


def _between(work: Call) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    torch.cuda.synchronize()
    torch.cuda._sleep(QUEUED)  # type: ignore[no-untyped-call]  # noqa: SLF001 - torch has no public name for it
    begin.record()
    work()
    end.record()
    end.synchronize()
    milliseconds: float = begin.elapsed_time(end)
    return milliseconds / 1000.0

"""How kernels are timed: recorded into CUDA graphs, replayed in rounds that each begin with another contestant.

One call of a contestant runs over several copies of its data (`calls`, as the layers of a step do), together larger
than the cache of the GPU, so that what is measured comes from its memory. A graph holds so many calls that the clock's
steps do not count; the launches' cost on the host is left out, as it is in a step that replays.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from benchmarks.harness import rotated

LEAST_S = 0.004
WARM = 3
Call = Callable[[], object]


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

    def prepare(self, contestant: Contestant) -> Callable[[], float]:
        """Do what is done once; the result gives seconds of one of its calls, each time anew."""
        ...


class GraphTimer:
    """Replays of CUDA graphs between two events."""

    def prepare(self, contestant: Contestant) -> Callable[[], float]:
        """Compile, record a graph that takes LEAST_S at least, and replay it once."""
        for _ in range(WARM):
            contestant.once()
        repeats = max(1, round(LEAST_S / max(_between(contestant.once), 1e-6)))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(repeats):
                contestant.once()
        graph.replay()
        count = repeats * len(contestant.calls)
        return lambda: _between(graph.replay) / count


class EventTimer:
    """Calls between two events, for what a graph cannot hold."""

    def prepare(self, contestant: Contestant) -> Callable[[], float]:
        """Call it a few times."""
        for _ in range(WARM):
            contestant.once()
        return lambda: _between(contestant.once) / len(contestant.calls)


def rounds(contestants: Mapping[str, Contestant], timer: Timer, count: int) -> dict[str, list[float]]:
    """Seconds of each contestant's call, round by round."""
    prepared = {name: timer.prepare(contestant) for name, contestant in contestants.items()}
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for turn in range(count):
        for name in rotated(list(prepared), turn):
            times[name].append(prepared[name]())
    return times


def ratios(over: Sequence[float], under: Sequence[float]) -> list[float]:
    """Round by round, so that what disturbs a round disturbs both."""
    return [one / other for one, other in zip(over, under, strict=True)]


def _between(work: Call) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    torch.cuda.synchronize()
    begin.record()
    work()
    end.record()
    end.synchronize()
    milliseconds: float = begin.elapsed_time(end)
    return milliseconds / 1000.0

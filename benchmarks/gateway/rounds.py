"""Rounds in which all contestants do the same work one after another, each round beginning with another one.

Neighbours on the machine change single figures by half, so whoever is compared is compared within a round, and what
counts is the median of the rounds' ratios.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import uvloop
from benchmarks.gateway.client import Load, Tally, Target
from benchmarks.gateway.contestant import spent_s
from benchmarks.gateway.script import Script
from benchmarks.gateway.stage import DIRECT, OURS, TROUBLE, Stage
from benchmarks.gateway.work import SHARED, bodies
from benchmarks.harness import Bar, Row, median_row, rotated

BODIES = 64
MB = 1 << 20


@dataclass(frozen=True, slots=True)
class Work:
    """One kind of load. With a `rate` it is an open loop of so many requests a second, else so many connections."""

    name: str
    script: Script
    requests: int
    connections: int = 32
    rate: float | None = None
    size: int = SHARED + 256

    def run(self, target: Target, turn: int, slow: int = 1) -> Tally:
        """The load of one turn: the same for everybody within it, but that the slow are asked for less."""
        count, requests = max(2, min(BODIES, 4 * MB // self.size)), max(self.requests // slow, 2)
        load = Load(target, self.script, bodies(count, self.size, stream=self.script.stream, seed=turn))
        if self.rate is None:
            return uvloop.run(load.closed(min(self.connections, requests), requests))
        return uvloop.run(load.open(arrivals(self.rate / slow, requests, turn)))


@dataclass(slots=True)
class Sample:
    """One contestant's turn. `cpu_s`: of the contestant, over all of the turn."""

    tally: Tally
    cpu_s: float

    @property
    def per_s(self) -> float:
        """Good requests a second."""
        return self.tally.done / self.tally.seconds

    @property
    def cpu_ms(self) -> float:
        """Processor milliseconds a request."""
        return self.cpu_s * 1e3 / max(self.tally.done, 1)

    @property
    def first_ms(self) -> float:
        """Median milliseconds to the first content."""
        return median(self.tally.first_s) * 1e3 if self.tally.first_s else 0.0


Value = Callable[[Sample], float]


@dataclass(slots=True)
class Samples:
    """Of one work, by contestant and round."""

    work: Work
    by_name: dict[str, list[Sample]] = field(default_factory=dict)

    def values(self, name: str, value: Value) -> list[float]:
        """Round by round."""
        return [value(sample) for sample in self.by_name[name]]

    def row(self, what: str, unit: str, one: str, other: str, value: Value) -> Row:
        """Both medians in one row."""
        peer = median(self.values(other, value))
        return median_row(f"{self.work.name}: {what}, {one} and {other}", self.values(one, value), unit, peer=peer)

    def ratio(self, what: str, one: str, other: str, value: Value, bar: Bar | None = None) -> Row:
        """The median of the rounds' ratios."""
        found = ratios(self.values(one, value), self.values(other, value))
        return median_row(f"{self.work.name}: {what}, {one} over {other}", found, "ratio", bar)

    def errors(self) -> Row:
        """Requests that went wrong, of everybody."""
        wrong = {name: sum(one.tally.errors for one in samples) for name, samples in self.by_name.items()}
        whose = ", ".join(name for name, count in wrong.items() if count) or "all contestants"
        return Row(f"{self.work.name}: requests failed, {whose}", sum(wrong.values()), "", bar=Bar(0))

    def details(self) -> dict[str, Any]:
        """What is kept of them beside the rows."""
        return {
            name: {
                "requests_per_s": self.values(name, lambda one: one.per_s),
                "cpu_ms": self.values(name, lambda one: one.cpu_ms),
                "first_ms": self.values(name, lambda one: one.first_ms),
                "complaints": sorted({text for one in samples for text in one.tally.complaints}),
            }
            for name, samples in self.by_name.items()
        }


def measured(
    stage: Stage, work: Work, names: Sequence[str], count: int, slow: Mapping[str, int] | None = None
) -> Samples:
    """Rounds of one work. `slow`: who is asked by how much less. Who fails is dropped, but not ours."""
    samples = Samples(work, {name: [] for name in names})
    for turn in range(count):
        for name in [name for name in rotated(names, turn) if name in samples.by_name]:
            try:
                with stage.turn(name, work.script) as target:
                    before = stage.times(name)
                    tally = work.run(target, turn, (slow or {}).get(name, 1))
                    samples.by_name[name].append(Sample(tally, spent_s(before, stage.times(name))))
            except TROUBLE as error:
                if name in (DIRECT, OURS):
                    raise
                stage.drop(name, error)
                del samples.by_name[name]
    return samples


def ratios(mine: Sequence[float], theirs: Sequence[float]) -> list[float]:
    """Round by round; a round in which the other has nothing counts as infinite."""
    return [one / other if other else float("inf") for one, other in zip(mine, theirs, strict=True)]


def arrivals(rate: float, count: int, seed: int) -> list[float]:
    """Moments of a Poisson process, in seconds."""
    chance, now, found = random.Random(seed), 0.0, []
    for _ in range(count):
        now += chance.expovariate(rate)
        found.append(now)
    return found

"""Counters and histograms cheap enough for every token: an observation is one bisection and two additions, no lock.

prometheus-client's own take five times as long; it can still collect these (`CounterFamily`, `HistogramFamily`).
Invariant: one thread counts (the event loop's); a scrape may come from any.

A quantile is as exact as its bucket is narrow. `around` adds edges near an SLO's target. Histograms that are summed
must have the same edges, so all children that a dashboard sums get the same targets; a child whose targets change
restarts at zero, as after a restart of the process.

Quantiles are estimated from cumulative buckets as Prometheus does: (upper edge, cumulative count) in any order; the
edge `inf` counts all. The bench client's `percentile` is exact instead.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from paceline_core.registry.metrics import Metric

C = TypeVar("C")


class Children(Generic[C]):
    def __init__(self, row: Metric, make: Callable[[], C]) -> None:
        self._row = row
        self._make = make
        self._found: dict[tuple[str, ...], C] = {}
        if not row.labels:
            self.labels()

    def labels(self, *values: str) -> C:
        child = self._found.get(values)
        return self.replace(values) if child is None else child

    def replace(self, values: tuple[str, ...], make: Callable[[], C] | None = None) -> C:
        if len(values) != len(self._row.labels):
            raise ValueError(f"{self._row.name} has the labels {', '.join(self._row.labels)}")
        child = self._found[values] = (make or self._make)()
        return child

    def values(self) -> list[tuple[tuple[str, ...], C]]:
        return list(self._found.items())

    def children(self) -> list[tuple[dict[str, str], C]]:
        return [(dict(zip(self._row.labels, values, strict=True)), child) for values, child in self.values()]

    def remove_by_labels(self, labels: Mapping[str, str]) -> None:
        wanted = [(self._row.labels.index(name), value) for name, value in labels.items()]
        for values in [v for v in self._found if all(v[at] == value for at, value in wanted)]:
            del self._found[values]


class Counter:
    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, amount: float = 1.0) -> None:
        if amount < 0:
            raise ValueError("a counter only grows")
        self.value += amount


class CounterFamily(Children[Counter], Collector):
    def __init__(self, row: Metric, registry: CollectorRegistry) -> None:
        super().__init__(row, Counter)
        registry.register(self)

    def describe(self) -> Iterator[CounterMetricFamily]:
        yield self._family()

    def collect(self) -> Iterator[CounterMetricFamily]:
        family = self._family()
        for values, child in self.values():
            family.add_metric(values, child.value)
        yield family

    def _family(self) -> CounterMetricFamily:
        return CounterMetricFamily(self._row.name, self._row.help, labels=self._row.labels)


STEP = 1.04
REACH = 4
_SAME = 1.005
_LADDERS = 256


@dataclass(frozen=True, slots=True)
class Exemplar:
    """One observation that can be looked up: its trace, and when it was made (Unix seconds)."""

    trace_id: int
    value: float
    at: float


class Histogram:
    """One child: observations counted by bucket, their sum, and by bucket index the last traced one."""

    __slots__ = ("bounds", "counts", "exemplars", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0
        self.exemplars: dict[int, Exemplar] = {}

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def observe_many(self, value: float, times: int) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def observe_traced(self, exemplar: Exemplar) -> None:
        place = bisect_left(self.bounds, exemplar.value)
        self.counts[place] += 1
        self.total += exemplar.value
        self.exemplars[place] = exemplar

    @classmethod
    def sum(cls, children: Sequence["Histogram"]) -> "Histogram":
        whole = cls(children[0].bounds)
        whole.counts = [sum(counts) for counts in zip(*(child.counts for child in children), strict=True)]
        whole.total = sum(child.total for child in children)
        return whole

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative counts by upper bound, as in Prometheus's format."""
        bounds = (*map(str, self.bounds), "+Inf")
        return list(zip(bounds, accumulate(map(float, self.counts)), strict=True))


@lru_cache(_LADDERS)
def around(ladder: tuple[float, ...], targets: tuple[float, ...]) -> tuple[float, ...]:
    """A ladder with finer steps near each target: within 1.17 times of it, a quantile is known to 5 %.

    Each target is an edge itself, and all edges of the ladder are kept.
    """
    edges = {*ladder, *targets}
    steps = [STEP**step for step in range(-REACH, REACH + 1)]
    for edge in (float(f"{target * step:.4g}") for target in targets for step in steps):
        if all(max(edge, other) > _SAME * min(edge, other) for other in edges):
            edges.add(edge)
    return tuple(sorted(edges))


class HistogramFamily(Children[Histogram], Collector):
    def __init__(self, row: Metric, registry: CollectorRegistry) -> None:
        super().__init__(row, lambda: Histogram(row.buckets))
        registry.register(self)

    def fine(self, values: tuple[str, ...], targets: Iterable[float]) -> Histogram:
        """The child with these label values, restarted if its ladder does not fit these targets yet."""
        bounds = around(self._row.buckets, tuple(sorted(set(targets))))
        child = self.labels(*values)
        return child if child.bounds == bounds else self.replace(values, lambda: Histogram(bounds))

    def describe(self) -> Iterator[HistogramMetricFamily]:
        yield self._family()

    def collect(self) -> Iterator[HistogramMetricFamily]:
        family = self._family()
        for values, child in self.values():
            family.add_metric(values, child.buckets(), child.total)
        yield family

    def _family(self) -> HistogramMetricFamily:
        return HistogramMetricFamily(self._row.name, self._row.help, labels=self._row.labels)


Bucket = tuple[float, float]
ROUNDING = 1e-9
"""The tolerance of a rank: a quantile that equals a count is in that bucket."""


def bucket_quantile(quantile: float, buckets: Iterable[Bucket]) -> float:
    """Prometheus's `histogram_quantile`: linear within a bucket, NaN without observations, never past the last edge."""
    edges = sorted(buckets)
    if not edges or not math.isinf(edges[-1][0]) or edges[-1][1] <= 0:
        return math.nan
    rank = quantile * edges[-1][1]
    index = _reached(rank, edges)
    if math.isinf(edges[index][0]):
        return edges[-2][0] if len(edges) > 1 else math.nan
    lower, below = edges[index - 1] if index else (0.0, 0.0)
    upper, count = edges[index]
    return lower + (upper - lower) * (rank - below) / (count - below) if count > below else upper


def bucket_quantile_bound(quantile: float, buckets: Iterable[Bucket]) -> float | None:
    """The upper edge of the bucket that holds the quantile; None without observations."""
    edges = sorted(buckets)
    if not edges or edges[-1][1] <= 0:
        return None
    return edges[_reached(quantile * edges[-1][1] - ROUNDING, edges)][0]


def _reached(rank: float, edges: list[Bucket]) -> int:
    return next(index for index, (_, count) in enumerate(edges) if count >= rank)

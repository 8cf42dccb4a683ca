"""Histograms cheap enough for every token: an observation is one bisection and two additions, without a lock.

prometheus-client's own takes five times as long, which at one observation a token is most of a proxy's work. It can
still collect them (`HistogramFamily`); this is only the counting. Invariant: one thread observes (the event loop's); a
scrape may come from any.

A row's ladder is coarse: what a quantile is known by is as wide as the bucket that it falls into. `around` puts edges
between its own where a promise makes the difference matter. What is summed must have the same edges, so all children
that a board adds up are given the same targets; a child whose targets change begins again at zero, as after a restart.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

from paceline_core.registry.metrics import Metric

STEP = 1.04
REACH = 4
_SAME = 1.005
_LADDERS = 256


@dataclass(frozen=True, slots=True)
class Exemplar:
    """One observation that can be looked up: the trace that it belongs to, and when it was made (Unix seconds)."""

    trace_id: int
    value: float
    at: float


class Histogram:
    """One child: observations counted by bucket, and their sum; by bucket's place the last one that was traced."""

    __slots__ = ("bounds", "counts", "exemplars", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0
        self.exemplars: dict[int, Exemplar] = {}

    def observe(self, value: float) -> None:
        """Count a value into the first bucket whose bound it does not exceed."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def observe_many(self, value: float, times: int) -> None:
        """Count the same value so often."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.total += value * times

    def observe_traced(self, exemplar: Exemplar) -> None:
        """Count a value, and keep it as its bucket's example."""
        self.observe(exemplar.value)
        self.exemplars[bisect_left(self.bounds, exemplar.value)] = exemplar

    @classmethod
    def sum(cls, children: Sequence["Histogram"]) -> "Histogram":
        """All observations of some children of one row, at least one."""
        whole = cls(children[0].bounds)
        whole.counts = [sum(counts) for counts in zip(*(child.counts for child in children), strict=True)]
        whole.total = sum(child.total for child in children)
        return whole

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative counts by upper bound, as Prometheus wants them."""
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


class HistogramFamily(Collector):
    """All children of one row of the registry."""

    def __init__(self, row: Metric, registry: CollectorRegistry) -> None:
        self._row = row
        self._children: dict[tuple[str, ...], Histogram] = {}
        if not row.labels:
            self.labels()
        registry.register(self)

    def labels(self, *values: str, targets: Iterable[float] | None = None) -> Histogram:
        """The child with these label values, in the row's order; made at zero when it, or its ladder, is new."""
        child = self._children.get(values)
        bounds = self._row.buckets if targets is None else around(self._row.buckets, tuple(sorted(set(targets))))
        if child is None or (targets is not None and child.bounds != bounds):
            if len(values) != len(self._row.labels):
                raise ValueError(f"{self._row.name} has the labels {', '.join(self._row.labels)}")
            child = self._children[values] = Histogram(bounds)
        return child

    def children(self) -> list[tuple[dict[str, str], Histogram]]:
        """Every child with its labels."""
        return [(dict(zip(self._row.labels, values, strict=True)), child) for values, child in self._children.items()]

    def remove_by_labels(self, labels: Mapping[str, str]) -> None:
        """Drop the children that have all of these."""
        wanted = [(self._row.labels.index(name), value) for name, value in labels.items()]
        for values in [v for v in self._children if all(v[at] == value for at, value in wanted)]:
            del self._children[values]

    def describe(self) -> Iterator[HistogramMetricFamily]:
        """prometheus-client: the family without samples."""
        yield self._family()

    def collect(self) -> Iterator[HistogramMetricFamily]:
        """prometheus-client: the family with all samples."""
        family = self._family()
        for values, child in list(self._children.items()):
            family.add_metric(values, child.buckets(), child.total)
        yield family

    def _family(self) -> HistogramMetricFamily:
        return HistogramMetricFamily(self._row.name, self._row.help, labels=self._row.labels)

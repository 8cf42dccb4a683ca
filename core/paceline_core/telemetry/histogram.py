"""Histograms cheap enough for every token: an observation is one bisection and two additions, without a lock.

prometheus-client's own takes five times as long, which at one observation a token is most of a proxy's work. It still
does the exposition; this is only the counting. Invariant: one thread observes (the event loop's); a scrape may come
from any.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

from paceline_core.registry.metrics import Metric


class Histogram:
    """One child: observations counted by bucket, and their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count a value into the first bucket whose bound it does not exceed."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

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


class HistogramFamily(Collector):
    """All children of one row of the registry."""

    def __init__(self, row: Metric, registry: CollectorRegistry) -> None:
        self._row = row
        self._children: dict[tuple[str, ...], Histogram] = {}
        if not row.labels:
            self.labels()
        registry.register(self)

    def labels(self, *values: str) -> Histogram:
        """The child with these label values, in the row's order; made at zero when it is new."""
        child = self._children.get(values)
        if child is None:
            if len(values) != len(self._row.labels):
                raise ValueError(f"{self._row.name} has the labels {', '.join(self._row.labels)}")
            child = self._children[values] = Histogram(self._row.buckets)
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

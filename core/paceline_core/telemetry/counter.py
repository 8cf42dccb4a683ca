"""Counters cheap enough for every request: an increment is one addition, without a lock.

prometheus-client's own takes five calls and a lock, eight times for each request of a gateway. It can still collect
them (`CounterFamily`). Invariant: one thread counts (the event loop's); a scrape may come from any.
"""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from paceline_core.registry.metrics import Metric
from paceline_core.telemetry.children import Children


class Counter:
    """One child."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, amount: float = 1.0) -> None:
        """Count so many more. Raises ValueError for less than nothing."""
        if amount < 0:
            raise ValueError("a counter only grows")
        self.value += amount


class CounterFamily(Children[Counter], Collector):
    """All children of one row of the registry."""

    def __init__(self, row: Metric, registry: CollectorRegistry) -> None:
        super().__init__(row, Counter)
        registry.register(self)

    def describe(self) -> Iterator[CounterMetricFamily]:
        """prometheus-client: the family without samples."""
        yield self._family()

    def collect(self) -> Iterator[CounterMetricFamily]:
        """prometheus-client: the family with all samples."""
        family = self._family()
        for values, child in self.values():
            family.add_metric(values, child.value)
        yield family

    def _family(self) -> CounterMetricFamily:
        return CounterMetricFamily(self._row.name, self._row.help, labels=self._row.labels)

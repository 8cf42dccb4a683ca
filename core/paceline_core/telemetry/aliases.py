"""Other names for our own series, made from them when somebody scrapes: nothing is counted twice."""

from collections.abc import Iterator, Mapping, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from paceline_core.registry.aliases import Alias, Info
from paceline_core.registry.metrics import METRICS, Kind
from paceline_core.telemetry.histogram import Histogram
from paceline_core.telemetry.metrics import Metrics


class AliasCollector(Collector):
    """`labels` stand on every alias. A source that has no matching child yet leaves its alias without a sample."""

    def __init__(
        self, metrics: Metrics, aliases: Sequence[Alias], infos: Sequence[Info], labels: Mapping[str, str]
    ) -> None:
        self._metrics = metrics
        self._aliases = aliases
        self._infos = infos
        self._labels = labels

    def describe(self) -> Iterator[Family]:
        """prometheus-client: nothing to compare names with before the first scrape."""
        return iter(())

    def collect(self) -> Iterator[Family]:
        """prometheus-client: every alias with its samples."""
        for alias in self._aliases:
            match METRICS[alias.source].kind:
                case Kind.HISTOGRAM:
                    yield self._histogram(alias)
                case Kind.COUNTER:
                    yield self._numbers(alias, CounterMetricFamily)
                case Kind.GAUGE:
                    yield self._numbers(alias, GaugeMetricFamily)
        yield from map(self._info, self._infos)

    def _histogram(self, alias: Alias) -> HistogramMetricFamily:
        family = HistogramMetricFamily(alias.name, alias.help, labels=tuple(self._labels))
        children = [child for labels, child in self._metrics.histograms(alias.source) if _matches(alias, labels)]
        if children:
            whole = Histogram.sum(children)
            family.add_metric(tuple(self._labels.values()), whole.buckets(), whole.total)
        return family

    def _numbers(
        self, alias: Alias, make: type[CounterMetricFamily] | type[GaugeMetricFamily]
    ) -> CounterMetricFamily | GaugeMetricFamily:
        ours, theirs = alias.by or ("", "")
        family = make(alias.name, alias.help, labels=(*self._labels, *filter(None, (theirs,))))
        every = list(self._metrics.numbers(alias.source))
        sums: dict[tuple[str, ...], float] = {}
        for labels, value in every:
            if _matches(alias, labels):
                key = tuple(labels[name] for name in filter(None, (ours,)))
                sums[key] = sums.get(key, 0.0) + value
        below = sum(value for _, value in every) if alias.share else 1.0
        for key, value in sums.items():
            family.add_metric((*self._labels.values(), *key), value / below if below else 0.0)
        return family

    def _info(self, info: Info) -> GaugeMetricFamily:
        family = GaugeMetricFamily(info.name, info.help, labels=(*self._labels, *info.labels))
        told = [sum(value for _, value in self._metrics.numbers(source)) for source in info.labels.values()]
        if all(told):
            family.add_metric((*self._labels.values(), *(str(int(value)) for value in told)), 1.0)
        return family


def _matches(alias: Alias, labels: Mapping[str, str]) -> bool:
    return all(labels[name] in values for name, values in alias.match.items())

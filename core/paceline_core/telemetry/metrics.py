"""The registry's rows as live metrics; one CollectorRegistry a process, nothing global.

Aliases (vLLM's names) are computed from our own series at each scrape: nothing is counted twice.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from prometheus_client import CollectorRegistry, Gauge

from paceline_core.registry.aliases import Alias, Info
from paceline_core.registry.metrics import METRICS, Kind, Metric
from paceline_core.telemetry import exposition
from paceline_core.telemetry.exposition import Family
from paceline_core.telemetry.instruments import Counter, CounterFamily, Histogram, HistogramFamily


class Metrics:
    """All families of one owner, by their registered name."""

    def __init__(self, owner: str) -> None:
        self.registry = CollectorRegistry()
        self._families = {row.name: self._make(row) for row in METRICS.values() if row.owner == owner}

    def counter(self, name: str, *labels: str) -> Counter:
        family = self._families[name]
        if not isinstance(family, CounterFamily):
            raise _not_a(Kind.COUNTER, name)
        return family.labels(*labels)

    def gauge(self, name: str, *labels: str) -> Gauge:
        family = self._families[name]
        if not isinstance(family, Gauge):
            raise _not_a(Kind.GAUGE, name)
        return family.labels(*labels) if labels else family

    def histogram(self, name: str, *labels: str, targets: Iterable[float] | None = None) -> Histogram:
        """The child histogram with these label values; `targets`: where its buckets are to be narrow."""
        family = self._histograms(name)
        return family.labels(*labels) if targets is None else family.fine(labels, targets)

    def families(self) -> Iterator[Family]:
        for name, family in self._families.items():
            row = METRICS[name]
            children = family.children() if isinstance(family, HistogramFamily) else self.numbers(name)
            yield Family(name, row.kind, row.help, children)

    def numbers(self, name: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of every child of a counter or a gauge."""
        family = self._families[name]
        if isinstance(family, CounterFamily):
            return [(labels, child.value) for labels, child in family.children()]
        families = family.collect()
        return [
            (sample.labels, sample.value) for family in families for sample in family.samples if sample.name == name
        ]

    def histograms(self, name: str) -> list[tuple[dict[str, str], Histogram]]:
        """Labels and child, for every child of a histogram."""
        return self._histograms(name).children()

    def forget(self, name: str, *labels: str) -> None:
        """Drop the children with these leading label values: their object is gone."""
        family, names = self._families[name], METRICS[name].labels
        family.remove_by_labels(dict(zip(names, labels, strict=False)))

    def exposition(self, accept: str) -> tuple[bytes, str]:
        """Body and content type for a scrape; OpenMetrics, with exemplars, when requested."""
        if "application/openmetrics-text" in accept:
            return exposition.open_page(self.families()), exposition.OPEN_TYPE
        return exposition.page(self.families()), exposition.CONTENT_TYPE

    def _histograms(self, name: str) -> HistogramFamily:
        family = self._families[name]
        if not isinstance(family, HistogramFamily):
            raise _not_a(Kind.HISTOGRAM, name)
        return family

    def _make(self, row: Metric) -> CounterFamily | Gauge | HistogramFamily:
        if row.kind is Kind.HISTOGRAM:
            return HistogramFamily(row, self.registry)
        if row.kind is Kind.GAUGE:
            return Gauge(row.name, row.help, row.labels, registry=self.registry)
        return CounterFamily(row, self.registry)


def _not_a(kind: Kind, name: str) -> TypeError:
    return TypeError(f"{name} is a {METRICS[name].kind}, not a {kind}")


_Samples = list[tuple[Mapping[str, str], float | Histogram]]


class Aliases:
    """`labels` are added to every alias. An alias has no sample until its source has a matching child."""

    def __init__(
        self, metrics: Metrics, aliases: Sequence[Alias], infos: Sequence[Info], labels: Mapping[str, str]
    ) -> None:
        self._metrics = metrics
        self._aliases = aliases
        self._infos = infos
        self._labels = labels

    def families(self) -> Iterator[Family]:
        for alias in self._aliases:
            kind = METRICS[alias.source].kind
            if kind is Kind.HISTOGRAM:
                found = [child for labels, child in self._metrics.histograms(alias.source) if _matches(alias, labels)]
                children: _Samples = [(self._labels, Histogram.sum(found))] if found else []
            else:
                children = self._numbers(alias)
            yield Family(alias.name, kind, alias.help, children)
        for info in self._infos:
            pools = {
                label: int(sum(value for _, value in self._metrics.numbers(source)))
                for label, source in info.labels.items()
            }
            own = {**self._labels, **{label: str(value) for label, value in pools.items()}}
            yield Family(info.name, Kind.GAUGE, info.help, [(own, 1.0)] if all(pools.values()) else [])

    def _numbers(self, alias: Alias) -> _Samples:
        ours, theirs = alias.by or ("", "")
        every = self._metrics.numbers(alias.source)
        sums: dict[str, float] = {}
        for labels, value in every:
            if _matches(alias, labels):
                key = labels.get(ours, "")
                sums[key] = sums.get(key, 0.0) + value
        below = sum(value for _, value in every) if alias.share else 1.0
        known = {key: {theirs: key} if theirs else {} for key in sums}
        return [({**self._labels, **known[key]}, value / below if below else 0.0) for key, value in sums.items()]


def _matches(alias: Alias, labels: Mapping[str, str]) -> bool:
    return all(labels[name] in values for name, values in alias.match.items())

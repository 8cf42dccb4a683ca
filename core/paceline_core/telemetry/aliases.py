"""Other names for our own series, made from them when somebody scrapes: nothing is counted twice."""

from collections.abc import Iterator, Mapping, Sequence

from paceline_core.registry.aliases import Alias, Info
from paceline_core.registry.metrics import METRICS, Kind
from paceline_core.telemetry.exposition import Family
from paceline_core.telemetry.instruments import Histogram
from paceline_core.telemetry.metrics import Metrics


class Aliases:
    """`labels` stand on every alias. A source that has no matching child yet leaves its alias without a sample."""

    def __init__(
        self, metrics: Metrics, aliases: Sequence[Alias], infos: Sequence[Info], labels: Mapping[str, str]
    ) -> None:
        self._metrics = metrics
        self._aliases = aliases
        self._infos = infos
        self._labels = labels

    def families(self) -> Iterator[Family]:
        """Every alias with its samples."""
        for alias in self._aliases:
            kind = METRICS[alias.source].kind
            children = self._histogram(alias) if kind is Kind.HISTOGRAM else self._numbers(alias)
            yield Family(alias.name, kind, alias.help, children)
        for info in self._infos:
            yield Family(info.name, Kind.GAUGE, info.help, self._info(info))

    def _histogram(self, alias: Alias) -> list[tuple[Mapping[str, str], float | Histogram]]:
        children = [child for labels, child in self._metrics.histograms(alias.source) if _matches(alias, labels)]
        return [(self._labels, Histogram.sum(children))] if children else []

    def _numbers(self, alias: Alias) -> list[tuple[Mapping[str, str], float | Histogram]]:
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

    def _info(self, info: Info) -> list[tuple[Mapping[str, str], float | Histogram]]:
        pools = {
            label: int(sum(value for _, value in self._metrics.numbers(source)))
            for label, source in info.labels.items()
        }
        return (
            [({**self._labels, **{label: str(value) for label, value in pools.items()}}, 1.0)]
            if all(pools.values())
            else []
        )


def _matches(alias: Alias, labels: Mapping[str, str]) -> bool:
    return all(labels[name] in values for name, values in alias.match.items())

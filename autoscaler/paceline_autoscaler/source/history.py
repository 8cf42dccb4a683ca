"""Scrapes over a window, and what Prometheus would make of them. Pure: `now` is an argument.

Counters are read as Prometheus reads them: growth is the sum of rises, and a fall is a restart from zero. A series
needs two scrapes in the window to have grown at all.
"""

import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from paceline_autoscaler.source.answers import MetricSample
from paceline_autoscaler.source.questions import HistogramQuantile, Increase, Query, series

Labels = tuple[tuple[str, str], ...]
Series = tuple[str, Labels]


@dataclass(frozen=True, slots=True)
class Scrape:
    """What one target exported at one moment, reduced to the series that questions read."""

    at: float
    values: Mapping[Series, float]


@dataclass(slots=True)
class SampleWindow:
    """The scrapes of one target, newest last; older than `keep_s` are dropped."""

    keep_s: float
    scrapes: deque[Scrape] = field(default_factory=deque)

    def add(self, scrape: Scrape) -> None:
        """Append, and forget what is out of reach."""
        self.scrapes.append(scrape)
        while self.scrapes[0].at < scrape.at - self.keep_s:
            self.scrapes.popleft()

    def age(self, now: float) -> float:
        """Seconds since the newest scrape; infinite when there is none."""
        return now - self.scrapes[-1].at if self.scrapes else math.inf


def evaluate(question: Query, histories: Iterable[SampleWindow], now: float) -> list[MetricSample]:
    """Answer a question from all targets' scrapes; an empty list when no series matched."""
    match question:
        case Increase():
            return [
                MetricSample(dict(key), value) for key, value in _growth(question, question.by, histories, now).items()
            ]
        case HistogramQuantile():
            return _quantiles(question, _growth(question, (*question.by, "le"), histories, now))


def _growth(question: Query, by: tuple[str, ...], histories: Iterable[SampleWindow], now: float) -> dict[Labels, float]:
    wanted, name = set(question.match), series(question)
    totals: dict[Labels, float] = {}
    for history in histories:
        scrapes = [scrape for scrape in history.scrapes if now - question.window_s <= scrape.at <= now]
        for key in {key for scrape in scrapes for key in scrape.values if key[0] == name and wanted <= set(key[1])}:
            points = [scrape.values[key] for scrape in scrapes if key in scrape.values]
            if len(points) > 1:
                group = tuple((label, value) for label, value in key[1] if label in by)
                totals[group] = totals.get(group, 0.0) + _rise(points)
    return totals


def _rise(points: list[float]) -> float:
    return sum(new - old if new >= old else new for old, new in pairwise(points))


def _quantiles(question: HistogramQuantile, buckets: Mapping[Labels, float]) -> list[MetricSample]:
    groups: dict[Labels, list[tuple[float, float]]] = {}
    for labels, count in buckets.items():
        edge = float(dict(labels)["le"])
        groups.setdefault(tuple(item for item in labels if item[0] != "le"), []).append((edge, count))
    return [MetricSample(dict(group), bucket_quantile(question.quantile, edges)) for group, edges in groups.items()]


def bucket_quantile(quantile: float, buckets: list[tuple[float, float]]) -> float:
    """Prometheus's `histogram_quantile`: linear within a bucket, NaN without observations, never past the last edge.

    `buckets` are (upper edge, cumulative count) in any order.
    """
    edges = sorted(buckets)
    if not edges or not math.isinf(edges[-1][0]) or edges[-1][1] <= 0:
        return math.nan
    rank = quantile * edges[-1][1]
    index = next(index for index, (_, count) in enumerate(edges) if count >= rank)
    if math.isinf(edges[index][0]):
        return edges[-2][0] if len(edges) > 1 else math.nan
    lower, below = edges[index - 1] if index else (0.0, 0.0)
    upper, count = edges[index]
    return lower + (upper - lower) * (rank - below) / (count - below) if count > below else upper

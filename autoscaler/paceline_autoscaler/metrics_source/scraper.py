"""The source without Prometheus: scrapes `/metrics` itself and evaluates a window, with the same six kinds of answer.

A target that has not answered for `stale_after_s` is missing; if some are missing the answer is Partial, if all are it
is Stale (or an Error, if none ever answered). Hole: what a gateway counts between its last scrape and its death is
lost, as with Prometheus, and a target that leaves the list takes its window with it.

Counters are read as Prometheus reads them: growth is the sum of rises, and a fall is a restart from zero. A series
needs two scrapes in the window to have grown at all. The evaluation is pure: `now` is an argument.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import httpx
from prometheus_client.parser import text_string_to_metric_families

from paceline_autoscaler.metrics_source.base import (
    HISTOGRAMS,
    VERDICTS,
    Empty,
    Error,
    ErrorKind,
    HistogramQuantile,
    Increase,
    MetricSample,
    Partial,
    Query,
    QueryAnswer,
    Stale,
    classify,
    series,
)
from paceline_core.clock import Clock
from paceline_core.telemetry.instruments import bucket_quantile

Labels = tuple[tuple[str, str], ...]
Series = tuple[str, Labels]


@dataclass(frozen=True, slots=True)
class Scrape:
    """What one target exported at one moment, reduced to the series that queries read."""

    at: float
    values: Mapping[Series, float]


@dataclass(slots=True)
class SampleWindow:
    """The scrapes of one target, newest last; older than `keep_s` are dropped."""

    keep_s: float
    scrapes: deque[Scrape] = field(default_factory=deque)

    def add(self, scrape: Scrape) -> None:
        self.scrapes.append(scrape)
        while self.scrapes[0].at < scrape.at - self.keep_s:
            self.scrapes.popleft()

    def age(self, now: float) -> float:
        """Seconds since the newest scrape; infinite if there is none."""
        return now - self.scrapes[-1].at if self.scrapes else math.inf


def evaluate(question: Query, histories: Iterable[SampleWindow], now: float) -> list[MetricSample]:
    """Answer a query from all targets' scrapes; an empty list if no series matches."""
    match question:
        case Increase():
            return [
                MetricSample(dict(key), value) for key, value in _growth(question, question.by, histories, now).items()
            ]
        case HistogramQuantile():
            buckets = _growth(question, (*question.by, "le"), histories, now)
            groups: dict[Labels, list[tuple[float, float]]] = {}
            for labels, count in buckets.items():
                edge = float(dict(labels)["le"])
                groups.setdefault(tuple(item for item in labels if item[0] != "le"), []).append((edge, count))
            return [
                MetricSample(dict(group), bucket_quantile(question.quantile, edges)) for group, edges in groups.items()
            ]


def _growth(question: Query, by: tuple[str, ...], histories: Iterable[SampleWindow], now: float) -> dict[Labels, float]:
    wanted, name = set(question.match), series(question)
    totals: dict[Labels, float] = {}
    for history in histories:
        scrapes = [scrape for scrape in history.scrapes if now - question.window_s <= scrape.at <= now]
        for key in {key for scrape in scrapes for key in scrape.values if key[0] == name and wanted <= set(key[1])}:
            points = [scrape.values[key] for scrape in scrapes if key in scrape.values]
            if len(points) > 1:
                group = tuple((label, value) for label, value in key[1] if label in by)
                rise = sum(new - old if new >= old else new for old, new in pairwise(points))
                totals[group] = totals.get(group, 0.0) + rise
    return totals


BODY_LIMIT = 8 << 20
_PREFIXES = (VERDICTS, *(f"{name}_bucket" for name in HISTOGRAMS.values()))


class ScrapeSource:
    """Scrapes the `targets` (URLs of `/metrics`) every `scrape_s`, in `run`, until cancelled."""

    def __init__(
        self,
        http: httpx.AsyncClient,
        targets: Callable[[], Iterable[str]],
        clock: Clock,
        *,
        scrape_s: float = 2.0,
        keep_s: float = 300.0,
    ) -> None:
        self._http = http
        self._targets = targets
        self._clock = clock
        self._scrape_s = scrape_s
        self._keep_s = keep_s
        self._stale_after_s = 5 * scrape_s
        self._histories: dict[str, SampleWindow] = {}
        self._faults: dict[str, str] = {}

    @property
    def address(self) -> str:
        """What is scraped, not from where: each cause names that."""
        return "of own scrapes of the gateways"

    async def run(self) -> None:
        while True:
            await self.scrape()
            await self._clock.sleep(self._scrape_s)

    async def scrape(self) -> None:
        targets = set(self._targets())
        self._histories = {url: self._histories.get(url) or SampleWindow(self._keep_s) for url in sorted(targets)}
        self._faults = {url: fault for url, fault in self._faults.items() if url in targets}
        await asyncio.gather(*(self._scrape(url) for url in targets))

    async def ask(self, question: Query) -> QueryAnswer:
        now = self._clock.monotonic()
        ages = {url: history.age(now) for url, history in self._histories.items()}
        missing = [url for url, age in ages.items() if age > self._stale_after_s]
        if not ages:
            return Empty()
        if len(missing) == len(ages):
            if (youngest_s := min(ages.values())) < math.inf:
                return Stale(youngest_s)
            cause = "; ".join(f"{url}: {fault}" for url, fault in self._faults.items())
            return Error(ErrorKind.UNREACHABLE, cause[:200])
        if missing:
            return Partial(tuple(f"{url}: {self._faults.get(url, 'not scraped yet')}" for url in missing))
        samples = evaluate(question, self._histories.values(), now)
        return classify(samples, max(ages.values()), self._stale_after_s)

    async def _scrape(self, url: str) -> None:
        try:
            values = dict(parse(await self._read(url)))
        except (httpx.HTTPError, ValueError) as error:
            self._faults[url] = repr(error)[:200]
            return
        self._faults.pop(url, None)
        self._histories[url].add(Scrape(self._clock.monotonic(), values))

    async def _read(self, url: str) -> str:
        body = bytearray()
        async with self._http.stream("GET", url, headers={"accept": "text/plain; version=0.0.4"}) as response:
            response.raise_for_status()
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > BODY_LIMIT:
                    raise ValueError(f"the answer is over {BODY_LIMIT} bytes")
        return body.decode()


def parse(text: str) -> Iterator[tuple[Series, float]]:
    """The series of an exposition that queries read. Raises ValueError if it is malformed."""
    lines = "\n".join(line for line in text.splitlines() if line.startswith(_PREFIXES))
    for family in text_string_to_metric_families(lines + "\n"):
        for sample in family.samples:
            yield (sample.name, tuple(sorted(sample.labels.items()))), sample.value

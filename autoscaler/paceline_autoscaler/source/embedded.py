"""The source that needs no Prometheus: own scrapes of `/metrics` over a window, the same six answers.

A target that has not answered for `stale_after_s` is missing; some missing is Partial, all missing is Stale (or an
Error, if none ever answered). Hole: what a gateway counted between its last scrape and its death is lost, as with
Prometheus, and a target that leaves the list takes its window with it.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator

import httpx
from prometheus_client.parser import text_string_to_metric_families

from paceline_autoscaler.source.answers import Empty, Error, ErrorKind, Partial, QueryAnswer, Stale, judge
from paceline_autoscaler.source.history import SampleWindow, Scrape, Series, evaluate
from paceline_autoscaler.source.questions import HISTOGRAMS, VERDICTS, Query
from paceline_core.clock import Clock

BODY_LIMIT = 8 << 20
_PREFIXES = (VERDICTS, *(f"{name}_bucket" for name in HISTOGRAMS.values()))


class ScrapeSource:
    """Scrapes the `targets` (URLs of `/metrics`) every `scrape_s`; `run` does so until cancelled."""

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
        """What is scraped, and not where: that stands in each cause."""
        return "of own scrapes of the gateways"

    async def run(self) -> None:
        """Scrape for ever."""
        while True:
            await self.scrape()
            await self._clock.sleep(self._scrape_s)

    async def scrape(self) -> None:
        """One round over all targets at once."""
        targets = set(self._targets())
        self._histories = {url: self._histories.get(url) or SampleWindow(self._keep_s) for url in sorted(targets)}
        self._faults = {url: fault for url, fault in self._faults.items() if url in targets}
        await asyncio.gather(*(self._scrape(url) for url in targets))

    async def ask(self, question: Query) -> QueryAnswer:
        """One of the six answers, from what has been scraped."""
        now = self._clock.monotonic()
        ages = {url: history.age(now) for url, history in self._histories.items()}
        missing = [url for url, age in ages.items() if age > self._stale_after_s]
        if not ages:
            return Empty()
        if len(missing) == len(ages):
            return self._blind(min(ages.values()))
        if missing:
            return Partial(tuple(f"{url}: {self._faults.get(url, 'not scraped yet')}" for url in missing))
        samples = evaluate(question, self._histories.values(), now)
        return judge(samples, max(ages.values()), self._stale_after_s)

    def _blind(self, age_s: float) -> QueryAnswer:
        if age_s < float("inf"):
            return Stale(age_s)
        return Error(ErrorKind.UNREACHABLE, "; ".join(f"{url}: {fault}" for url, fault in self._faults.items())[:200])

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
    """The series that questions read, out of an exposition. Raises ValueError when it is not one."""
    lines = "\n".join(line for line in text.splitlines() if line.startswith(_PREFIXES))
    for family in text_string_to_metric_families(lines + "\n"):
        for sample in family.samples:
            yield (sample.name, tuple(sorted(sample.labels.items()))), sample.value

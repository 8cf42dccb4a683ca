"""Own scrapes give the same six answers as Prometheus."""

import asyncio
from dataclasses import dataclass, field

import httpx
import pytest

from paceline_autoscaler.metrics_source.base import (
    Empty,
    Error,
    ErrorKind,
    MetricSample,
    NaN,
    Partial,
    Stale,
    Value,
    observed,
    verdicts,
)
from paceline_autoscaler.metrics_source.scraper import BODY_LIMIT, ScrapeSource, parse
from paceline_core.clock import ManualClock

VERDICTS = verdicts("default", "chat", 60.0)
TTFT = observed("default", "chat", "ttft", 0.95, 60.0)
HERE, THERE = "http://one/metrics", "http://two/metrics"


def counted(good: int, bad: int = 0, service: str = "chat") -> str:
    labels = f'pisvc_namespace="default",pisvc="{service}",class="interactive",slo="ttft_p95"'
    return (
        f'paceline_slo_requests_total{{{labels},verdict="good"}} {good}\n'
        f'paceline_slo_requests_total{{{labels},verdict="bad_ttft"}} {bad}\n'
        "python_gc_objects_collected_total 3\n"
    )


def timed(*counts: int) -> str:
    edges = ("0.5", "1.0", "+Inf")
    labels = 'pisvc_namespace="default",pisvc="chat",class="interactive"'
    name = "paceline_request_ttft_seconds_bucket"
    return "".join(f'{name}{{{labels},le="{edge}"}} {n}\n' for edge, n in zip(edges, counts, strict=True))


@dataclass
class Gateways:
    """Two gateways' metrics pages; a page of None does not answer."""

    pages: dict[str, str | None]
    clock: ManualClock = field(default_factory=ManualClock)
    source: ScrapeSource = field(init=False)
    scrapes: int = 0
    often: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        http = httpx.AsyncClient(transport=httpx.MockTransport(self._answer))
        self.source = ScrapeSource(http, lambda: tuple(self.pages), self.clock)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.scrapes += 1
        if self.scrapes >= 5:
            self.often.set()
        page = self.pages[str(request.url)]
        if page is None:
            raise httpx.ConnectError("refused")
        return httpx.Response(503 if page == "sick" else 200, text=page)

    async def scrape(self, **pages: str | None) -> None:
        """Serve these pages (`one`, `two`), scrape, and let two seconds pass before."""
        self.clock.advance(2)
        self.pages |= {f"http://{name}/metrics": page for name, page in pages.items()}
        await self.source.scrape()


async def test_two_gateways_are_summed() -> None:
    world = Gateways({HERE: counted(10), THERE: counted(100, 5)})
    await world.scrape()
    await world.scrape(one=counted(12, 1), two=counted(110, 5))
    answer = await world.source.ask(VERDICTS)
    assert isinstance(answer, Value)
    assert {sample.labels["verdict"]: sample.value for sample in answer.samples} == {"good": 12.0, "bad_ttft": 1.0}


async def test_a_restarted_gateway_counts_from_zero() -> None:
    world = Gateways({HERE: counted(10)})
    await world.scrape()
    await world.scrape(one=counted(3))
    answer = await world.source.ask(VERDICTS)
    assert isinstance(answer, Value)
    assert sum(sample.value for sample in answer.samples) == 3


async def test_what_is_older_than_the_window_does_not_count() -> None:
    world = Gateways({HERE: counted(0)})
    await world.scrape()
    await world.scrape(one=counted(50))
    for _ in range(31):
        await world.scrape(one=counted(50))
    answer = await world.source.ask(VERDICTS)
    assert isinstance(answer, Value)
    assert sum(sample.value for sample in answer.samples) == 0


async def test_no_gateway_at_all_is_empty() -> None:
    world = Gateways({})
    await world.scrape()
    assert await world.source.ask(VERDICTS) == Empty()


async def test_a_service_that_no_gateway_knows_is_empty() -> None:
    world = Gateways({HERE: counted(5, service="other")})
    await world.scrape()
    await world.scrape()
    assert await world.source.ask(VERDICTS) == Empty()


async def test_one_scrape_is_no_growth() -> None:
    world = Gateways({HERE: counted(5)})
    await world.scrape()
    assert await world.source.ask(VERDICTS) == Empty()


async def test_a_quantile_without_requests_is_nan() -> None:
    world = Gateways({HERE: timed(3, 4, 4)})
    await world.scrape()
    await world.scrape()
    assert await world.source.ask(TTFT) == NaN(0.0)


async def test_a_quantile_is_of_the_window_and_not_of_all_time() -> None:
    world = Gateways({HERE: timed(1000, 1000, 1000)})
    await world.scrape()
    await world.scrape(one=timed(1000, 1100, 1100))
    assert await world.source.ask(TTFT) == Value((MetricSample({"class": "interactive"}, 0.975),), 0.0)


@pytest.mark.parametrize("page", [None, "sick", 'paceline_slo_requests_total{class="x'])
async def test_a_gateway_that_never_answered_is_an_error(page: str | None) -> None:
    world = Gateways({HERE: page})
    await world.scrape()
    answer = await world.source.ask(VERDICTS)
    assert isinstance(answer, Error)
    assert answer.kind is ErrorKind.UNREACHABLE
    assert HERE in answer.detail


async def test_one_missed_scrape_is_forgiven_and_many_are_stale() -> None:
    world = Gateways({HERE: counted(5)})
    await world.scrape()
    await world.scrape(one=counted(9))
    await world.scrape(one=None)
    assert isinstance(await world.source.ask(VERDICTS), Value)
    for _ in range(5):
        await world.scrape()
    assert await world.source.ask(VERDICTS) == Stale(12.0)


async def test_one_gateway_of_two_missing_is_partial() -> None:
    world = Gateways({HERE: counted(5), THERE: counted(5)})
    await world.scrape()
    for _ in range(6):
        await world.scrape(two=None)
    answer = await world.source.ask(VERDICTS)
    assert isinstance(answer, Partial)
    assert THERE in answer.warnings[0]


async def test_a_page_over_the_limit_is_refused_before_it_is_read_whole() -> None:
    world = Gateways({HERE: "x" * (BODY_LIMIT + 1)})
    await world.scrape()
    assert isinstance(await world.source.ask(VERDICTS), Error)


async def test_a_gateway_that_left_the_list_is_forgotten() -> None:
    world = Gateways({HERE: counted(5), THERE: None})
    await world.scrape()
    del world.pages[THERE]
    await world.scrape(one=counted(6))
    assert isinstance(await world.source.ask(VERDICTS), Value)


def test_parsing_keeps_only_what_questions_read() -> None:
    found = dict(parse(counted(7) + timed(1, 2, 3) + "paceline_requests_total 9\n"))
    assert {name for name, _ in found} == {"paceline_slo_requests_total", "paceline_request_ttft_seconds_bucket"}


async def test_run_scrapes_until_it_is_cancelled() -> None:
    world = Gateways({HERE: counted(5)})
    task = asyncio.create_task(world.source.run())
    async with asyncio.timeout(5):
        await world.often.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert isinstance(await world.source.ask(VERDICTS), Value)

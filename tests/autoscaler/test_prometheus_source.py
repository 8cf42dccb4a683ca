"""The adapter against the real Prometheus, and against a fake for what the real one does only in bad weather."""

import asyncio
import json
import threading
from dataclasses import dataclass, replace

import httpx
import pytest
from tests.autoscaler.conftest import Page, Prometheus, until
from tests.ports import free_port

from paceline_autoscaler.metrics_source.base import (
    Empty,
    Error,
    ErrorKind,
    HistogramQuantile,
    Increase,
    NaN,
    Partial,
    Stale,
    Value,
    cause_of,
    observed,
    verdicts,
)
from paceline_autoscaler.metrics_source.prometheus import OUTSTANDING, PrometheusSource
from paceline_autoscaler.metrics_source.scraper import ScrapeSource
from paceline_core.clock import SystemClock

pytestmark = pytest.mark.real

VERDICTS = verdicts("default", "chat", 5.0)


@dataclass(frozen=True)
class Story:
    """One service in a Prometheus that all tests share: its questions, and what its gateway exports."""

    name: str
    source: PrometheusSource
    prometheus: Prometheus

    @property
    def verdicts(self) -> Increase:
        return verdicts("default", self.name, 5.0)

    @property
    def ttft(self) -> HistogramQuantile:
        return observed("default", self.name, "ttft", 0.95, 5.0)

    def export(self, good: int, bad: int, fast: int = 0, slow: int = 0) -> None:
        labels = f'pisvc_namespace="default",pisvc="{self.name}",class="interactive"'
        bucket = f"paceline_request_ttft_seconds_bucket{{{labels},le="
        self.prometheus.exporter.status = 200
        self.prometheus.exporter.body = "\n".join(
            [
                "# TYPE paceline_slo_requests_total counter",
                f'paceline_slo_requests_total{{{labels},slo="ttft_p95",verdict="good"}} {good}',
                f'paceline_slo_requests_total{{{labels},slo="ttft_p95",verdict="bad_ttft"}} {bad}',
                "# TYPE paceline_request_ttft_seconds histogram",
                f'{bucket}"0.5"}} {fast}',
                f'{bucket}"1.0"}} {fast + slow}',
                f'{bucket}"+Inf"}} {fast + slow}',
                "",
            ]
        )


@pytest.fixture
async def story(prometheus: Prometheus, request: pytest.FixtureRequest) -> Story:
    """A service of the test's own, once Prometheus has scraped its zeros twice."""
    made = Story(request.node.name, PrometheusSource(prometheus.url, stale_after_s=2.5), prometheus)
    made.export(0, 0)
    await until(lambda: made.source.ask(made.ttft), lambda answer: isinstance(answer, NaN))
    return made


def shares(answer: object) -> dict[str, float]:
    assert isinstance(answer, Value)
    return {sample.labels["verdict"]: sample.value for sample in answer.samples}


def has_grown(answer: object) -> bool:
    return isinstance(answer, Value) and shares(answer).get("good", 0) > 0


async def test_growth_of_a_counter_is_a_value_with_its_age(story: Story) -> None:
    story.export(90, 10)
    answer = await until(lambda: story.source.ask(story.verdicts), has_grown)
    found = shares(answer)
    assert found["bad_ttft"] / found["good"] == pytest.approx(10 / 90)
    assert isinstance(answer, Value)
    assert 0 <= answer.age_s <= 2.5


async def test_a_series_nobody_exports_is_empty(story: Story) -> None:
    assert await story.source.ask(verdicts("default", "other", 5.0)) == Empty()


async def test_a_quantile_of_no_requests_is_nan_and_not_zero(story: Story) -> None:
    assert isinstance(await story.source.ask(story.ttft), NaN)


async def test_nothing_divided_by_nothing_is_nan(story: Story) -> None:
    assert isinstance(await story.source.query("0 * up / (0 * up)", "up"), NaN)


async def test_a_series_that_is_nan_is_left_out_beside_one_that_is_not(story: Story) -> None:
    answer = await story.source.query('label_replace(0 * up / (0 * up), "half", "nan", "", "") or up', "up")
    assert isinstance(answer, Value)
    assert [sample.value for sample in answer.samples] == [1.0]


async def test_a_target_that_is_gone_turns_stale(story: Story) -> None:
    story.prometheus.exporter.status = 500
    answer = await until(lambda: story.source.ask(story.verdicts), lambda answer: isinstance(answer, Stale))
    assert isinstance(answer, Stale)
    assert answer.age_s > 2.5


async def test_a_name_with_quotes_and_backslashes_is_asked_for_as_it_is(story: Story) -> None:
    assert await story.source.ask(verdicts('it\'s "odd"\\n', story.name, 5.0)) == Empty()


async def test_an_expression_that_prometheus_refuses_is_an_error(story: Story) -> None:
    answer = await story.source.query("sum by (", "up")
    assert isinstance(answer, Error)
    assert answer.kind is ErrorKind.REFUSED


async def test_both_sources_report_the_same_story(story: Story) -> None:
    async with httpx.AsyncClient() as http:
        embedded = ScrapeSource(http, lambda: [f"{story.prometheus.exporter.url}/metrics"], SystemClock())
        await embedded.scrape()
        story.export(80, 20, fast=60, slow=40)
        await embedded.scrape()
        theirs = await until(lambda: story.source.ask(story.verdicts), has_grown)
        ours = await embedded.ask(story.verdicts)
        assert shares(ours) == {"good": 80, "bad_ttft": 20}
        assert shares(theirs)["good"] / shares(theirs)["bad_ttft"] == pytest.approx(4)
        for quantile in (0.5, 0.95):
            question = replace(story.ttft, quantile=quantile)
            answers = [await story.source.ask(question), await embedded.ask(question)]
            first, second = [answer.samples[0].value for answer in answers if isinstance(answer, Value)]
            assert first == pytest.approx(second)


async def test_warnings_make_an_answer_partial(page: Page) -> None:
    page.body = json.dumps(
        {
            "status": "success",
            "warnings": ["store gateway-1 did not answer"],
            "data": {"resultType": "vector", "result": [{"metric": {}, "value": [1, "3"]}]},
        }
    )
    answer = await PrometheusSource(page.url).ask(VERDICTS)
    assert answer == Partial(("store gateway-1 did not answer",))


@pytest.mark.parametrize("status", [400, 429, 500, 503])
async def test_a_refusal_is_an_error_and_is_asked_once(page: Page, status: int) -> None:
    page.status = status
    answer = await PrometheusSource(page.url).ask(VERDICTS)
    assert isinstance(answer, Error)
    assert answer.kind is ErrorKind.REFUSED
    assert len(page.asked) == 1


@pytest.mark.parametrize("body", ["", "not json", "[]", '{"status": "error"}', '{"data": {"result": [{"value": 1}]}}'])
async def test_nonsense_is_an_error(page: Page, body: str) -> None:
    page.body = body
    answer = await PrometheusSource(page.url).ask(VERDICTS)
    assert isinstance(answer, Error)
    assert answer.kind is ErrorKind.MALFORMED


async def test_a_port_nobody_listens_on_is_an_error_in_the_same_words_each_time() -> None:
    source = PrometheusSource(f"http://user:secret@127.0.0.1:{free_port()}")
    answer = await source.ask(VERDICTS)
    assert isinstance(answer, Error)
    assert answer.kind is ErrorKind.UNREACHABLE
    assert answer.detail == "[Errno 111] Connection refused"
    assert await source.ask(VERDICTS) == answer
    assert "secret" not in source.address
    assert cause_of(answer) == "unreachable: [Errno 111] Connection refused"


async def test_a_name_that_does_not_resolve_is_reported_without_addresses_in_memory() -> None:
    answer = await PrometheusSource("http://nowhere.invalid:9090", deadline_s=10.0).ask(VERDICTS)
    assert isinstance(answer, Error)
    assert " at 0x" not in answer.detail
    assert "nowhere.invalid" in answer.detail


async def test_a_silent_server_costs_no_more_than_the_deadline(page: Page) -> None:
    page.stall = threading.Event()
    answer = await PrometheusSource(page.url, deadline_s=0.1).ask(VERDICTS)
    assert isinstance(answer, Error)
    assert answer.kind is ErrorKind.TIMEOUT


async def test_questions_without_an_answer_do_not_pile_up(page: Page) -> None:
    page.stall = threading.Event()
    source = PrometheusSource(page.url, deadline_s=20.0)
    asked = [asyncio.ensure_future(source.ask(VERDICTS)) for _ in range(OUTSTANDING + 1)]
    done, waiting = await asyncio.wait(asked, return_when=asyncio.FIRST_COMPLETED)
    assert [task.result() for task in done] == [Error(ErrorKind.BUSY, "8 questions are still without an answer")]
    page.stall.set()
    await asyncio.gather(*waiting)

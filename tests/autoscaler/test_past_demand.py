"""Past work from a real Prometheus that has scraped gateways for days, and from a fake for what goes wrong with one."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from functools import partial, reduce
from math import sin

import pytest
from tests.autoscaler.conftest import Page, until
from tests.autoscaler.factories import NOW, goal, observation
from tests.autoscaler.gateway_counters import GatewayCounters, counts, prometheus_with

from paceline_autoscaler.metrics_source.base import Empty, Error, NaN, Partial, RangeQuery, RangeValue
from paceline_autoscaler.metrics_source.prometheus import PrometheusSource
from paceline_autoscaler.model.history import learn
from paceline_autoscaler.model.past_work import slots_of, work_histories
from paceline_autoscaler.model.unknown_work import UnknownSpan, filled, unknown_spans
from paceline_autoscaler.model.work_history import BIN_S, RATES, WorkHistory
from paceline_autoscaler.signals.past_demand import RETRIES_S, Histories, PastDemand, PastQuestion
from paceline_autoscaler.state import State
from paceline_core.clock import ManualClock
from paceline_core.telemetry import Metrics

END = NOW - NOW % 86_400.0
DAY_S, SPAN_S = 86_400.0, 30 * 3600.0
LEARNED = learn(observation(), State()).learned
HOLE = (END - 3 * 3600, END - 2 * 3600)


def past_demand(url: str, clock: ManualClock | None = None) -> PastDemand:
    return PastDemand(PrometheusSource(url, deadline_s=20.0), clock or ManualClock(), Metrics("autoscaler"))


def question(spans: tuple[UnknownSpan, ...], service: str = "default/chat") -> PastQuestion:
    return PastQuestion(goal(service=service), LEARNED, spans)


WEEK = question(unknown_spans([], END))


async def asked(url: str, question: PastQuestion) -> tuple[WorkHistory, str | None]:
    """All that is found, and why it is not more."""
    found: list[Histories] = []
    cause = await past_demand(url).ask(question, found.append)
    return reduce(filled, (history for part in found for _, history in part), WorkHistory()), cause


@pytest.fixture(scope="module")
def gateways() -> list[GatewayCounters]:
    """Two that were scraped every 30 s for 30 hours, the second one for the last six and not during one of them."""
    first, second = GatewayCounters("gateway-0"), GatewayCounters("gateway-1")
    for number in range(round(SPAN_S / 30)):
        at = END - SPAN_S + number * 30 + 4
        first.add(counts(30 * (20 + 10 * sin(at / 4000))))
        first.scrape(at)
        if at > END - 6 * 3600:
            second.add(counts(300))
            if not HOLE[0] <= at < HOLE[1]:
                second.scrape(at)
    return [first, second]


@pytest.fixture(scope="module")
def url(gateways: list[GatewayCounters], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with prometheus_with(tmp_path_factory.mktemp("past"), gateways) as address:
        yield address


@pytest.mark.real
async def test_all_that_it_knows_is_read_in_days_with_its_gap(url: str, gateways: list[GatewayCounters]) -> None:
    history, cause = await asked(url, WEEK)
    assert cause is None
    assert len(history.codes) == pytest.approx(SPAN_S / BIN_S, abs=5)
    assert history.codes.count(0) == pytest.approx((HOLE[1] - HOLE[0]) / BIN_S, abs=3)
    slots = slots_of([gateway.scrapes for gateway in gateways], BIN_S)
    direct = dict(work_histories(goal(), LEARNED, slots, BIN_S))["both"]
    shift = round((history.begin - direct.begin) / BIN_S)
    pairs = [(RATES[a], RATES[b]) for a, b in zip(direct.codes[shift:], history.codes, strict=False) if a and b]
    assert len(pairs) > SPAN_S / BIN_S - 150
    assert all(one == pytest.approx(other, rel=0.11) for one, other in pairs)


@pytest.mark.real
async def test_only_what_is_missing_is_asked_for(url: str) -> None:
    spans = (UnknownSpan(END - 3600, END - 1800),)
    history, cause = await asked(url, question(spans))
    assert cause is None
    assert history.begin == pytest.approx(END - 3600, abs=4 * BIN_S)
    assert len(history.codes) == pytest.approx(60, abs=4)


@pytest.mark.real
async def test_a_service_without_series_is_empty(url: str) -> None:
    found = await asked(url, question(WEEK.spans, "default/other"))
    assert found == (WorkHistory(), "it knows no such series")


@pytest.mark.real
async def test_more_steps_than_prometheus_answers_are_an_error(url: str) -> None:
    answer = await PrometheusSource(url).ask_range(RangeQuery("up", END - 7 * DAY_S, END, 30.0))
    assert isinstance(answer, Error)
    assert "11,000 points" in answer.detail


def matrix(*values: tuple[float, str], warnings: tuple[str, ...] = ()) -> str:
    rows = [{"metric": {"kind": "arrived"}, "values": [*values]}] if values else []
    data = {"resultType": "matrix", "result": rows}
    return json.dumps({"status": "success", "data": data, "warnings": [*warnings]})


ANSWERS = {
    "empty": (matrix(), Empty),
    "nan": (matrix((1.0, "NaN")), NaN),
    "partial": (matrix((1.0, "2"), warnings=("store gateway-1 did not answer",)), Partial),
    "malformed": ("nonsense", Error),
    "value": (matrix((1.0, "2"), (31.0, "NaN")), RangeValue),
}


@pytest.mark.parametrize("name", ANSWERS)
async def test_a_range_has_the_kinds_of_answer_of_any_question(page: Page, name: str) -> None:
    page.body, kind = ANSWERS[name]
    answer = await PrometheusSource(page.url).ask_range(RangeQuery("up", 0.0, 60.0, 30.0))
    assert isinstance(answer, kind)
    if isinstance(answer, RangeValue):
        assert answer.series[0].points == ((1.0, 2.0),)


@contextlib.asynccontextmanager
async def running(past: PastDemand) -> AsyncIterator[None]:
    task = asyncio.create_task(past.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("name", ["empty", "nan", "partial", "malformed"])
async def test_what_is_no_value_changes_nothing_and_is_asked_for_again_a_few_times(page: Page, name: str) -> None:
    page.body, _ = ANSWERS[name]
    clock = ManualClock()
    past = past_demand(page.url, clock)
    async with running(past):
        for wait_s in (*RETRIES_S, 0.0):
            assert past.may_ask("default/chat")
            past.want(WEEK)
            assert not past.may_ask("default/chat")
            await until(partial(_idle, past), bool)
            assert past.take("default/chat") == ()
            clock.advance(wait_s - 1)
            assert not past.may_ask("default/chat")
            clock.advance(1)
        assert len(page.asked) == len(RETRIES_S) + 1
        clock.advance(DAY_S)
        assert not past.may_ask("default/chat")
        past.forget("default/chat")
        assert past.may_ask("default/chat")


async def _idle(past: PastDemand) -> bool:
    return past.idle


@pytest.mark.real
async def test_what_was_found_is_taken_once_and_not_asked_for_again(url: str) -> None:
    clock = ManualClock()
    past = past_demand(url, clock)
    async with running(past):
        past.want(question((UnknownSpan(END - 3600, END),)))

        async def taken() -> Histories:
            return past.take("default/chat")

        found = await until(taken, bool)
    assert found[0][1].known > 100
    assert past.take("default/chat") == ()
    clock.advance(DAY_S)
    assert not past.may_ask("default/chat")

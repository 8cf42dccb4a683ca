"""Attainment is asked in the background, ages, and never blocks."""

import asyncio
from collections.abc import Callable

import pytest
from tests.autoscaler.factories import INTERACTIVE, goal

from paceline_autoscaler.metrics_source.base import (
    Empty,
    Error,
    ErrorKind,
    HistogramQuantile,
    Increase,
    MetricSample,
    NaN,
    Partial,
    Query,
    QueryAnswer,
    Stale,
    Value,
    cause_of,
)
from paceline_autoscaler.signals.attainment import AttainmentPoller, slo_counts
from paceline_autoscaler.types import ATTAINMENT_WINDOW_S, Attainment, SloCounts
from paceline_core.clock import ManualClock
from paceline_core.registry.enums import QueryResult
from paceline_core.telemetry import Metrics

LABELS = {"class": "interactive", "slo": "ttft_p95"}
COUNTS = Value(
    (MetricSample({**LABELS, "verdict": "good"}, 95), MetricSample({**LABELS, "verdict": "bad_ttft"}, 5)), 1.0
)


class Source:
    """A metrics source with prepared answers."""

    address = "http://prometheus:9090"

    def __init__(self, answer: Callable[[Query], QueryAnswer]) -> None:
        self._answer = answer
        self.asked: list[Query] = []
        self.at_once = self.most_at_once = 0

    async def ask(self, question: Query) -> QueryAnswer:
        self.asked.append(question)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(0)
        self.at_once -= 1
        return self._answer(question)

    async def run(self) -> None:
        return


def both(question: Query) -> QueryAnswer:
    return COUNTS if isinstance(question, Increase) else Value((MetricSample({"class": "interactive"}, 0.42),), 1.0)


def measures(source: Source, clock: ManualClock | None = None) -> AttainmentPoller:
    return AttainmentPoller(source, clock or ManualClock(), Metrics("autoscaler"), interval_s=5.0)


async def test_a_round_brings_verdicts_and_quantiles() -> None:
    asking = measures(Source(both))
    assert asking.attainment("default/chat") is None
    await asking.round([goal()])
    assert asking.attainment("default/chat") == Attainment(
        QueryResult.VALUE, ATTAINMENT_WINDOW_S, (SloCounts(INTERACTIVE, "ttft_p95", 95, 5),), Source.address
    )
    assert [latency.seconds for latency in asking.latencies("default/chat")] == [0.42]
    assert asking.age_s("default/chat") == 1.0


@pytest.mark.parametrize(
    "answer", [Empty(), NaN(1.0), Stale(99.0), Partial(("half",)), Error(ErrorKind.TIMEOUT, "no answer")]
)
async def test_every_other_answer_is_passed_on_as_what_it_is(answer: QueryAnswer) -> None:
    asking = measures(Source(lambda _: answer))
    await asking.round([goal()])
    assert asking.attainment("default/chat") == Attainment(
        answer.result, ATTAINMENT_WINDOW_S, (), Source.address, cause_of(answer)
    )
    assert asking.latencies("default/chat") == ()
    assert asking.age_s("default/chat") is None


async def test_what_a_round_left_behind_turns_stale() -> None:
    clock = ManualClock()
    asking = measures(Source(both), clock)
    await asking.round([goal()])
    clock.advance(16)
    found = asking.attainment("default/chat")
    assert found is not None
    assert found.result is QueryResult.STALE
    assert found.verdicts == ()


async def test_a_service_without_targets_is_not_asked_for() -> None:
    source = Source(both)
    await measures(source).round([goal(targets=())])
    assert source.asked == []


async def test_a_service_that_is_gone_is_forgotten() -> None:
    asking = measures(Source(both))
    await asking.round([goal()])
    await asking.round([])
    assert asking.attainment("default/chat") is None


async def test_many_services_are_asked_few_at_a_time() -> None:
    source = Source(both)
    await measures(source).round([goal(service=f"default/s{n}") for n in range(20)])
    assert len(source.asked) == 40
    assert source.most_at_once <= 4


async def test_answers_are_counted_by_kind() -> None:
    metrics = Metrics("autoscaler")
    asking = AttainmentPoller(
        Source(lambda q: NaN(0.0) if isinstance(q, HistogramQuantile) else COUNTS),
        ManualClock(),
        metrics,
        interval_s=5.0,
    )
    await asking.round([goal()])
    assert b'paceline_autoscaler_query_results_total{result="nan"} 1.0' in metrics.exposition("")[0]
    assert b'paceline_autoscaler_query_results_total{result="error"} 0.0' in metrics.exposition("")[0]


def test_verdicts_are_summed_and_unknown_classes_left_out() -> None:
    samples = (
        MetricSample({**LABELS, "verdict": "good"}, 7.5),
        MetricSample({**LABELS, "verdict": "bad_ttft"}, 1.0),
        MetricSample({**LABELS, "verdict": "bad_failed"}, 2.0),
        MetricSample({"class": "vip", "slo": "ttft_p95", "verdict": "good"}, 9.0),
        MetricSample({"class": "interactive", "verdict": "good"}, 9.0),
    )
    assert slo_counts(Value(samples, 0.0)) == (SloCounts(INTERACTIVE, "ttft_p95", 7.5, 3.0),)


async def test_run_goes_on_asking_until_it_is_cancelled() -> None:
    source, clock = Source(both), ManualClock()
    task = asyncio.create_task(measures(source, clock).run(lambda: [goal()]))
    for _ in range(200):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(source.asked) > 4

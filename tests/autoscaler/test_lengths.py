"""How long requests are: from gateways' counts into what is stored, and out again for what-if; no decision sees it."""

from math import exp

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.autoscaler.fake_cluster import FakeCluster
from tests.autoscaler.test_controller import CHAT, Rig

from paceline_autoscaler.model.lengths import MEMORY_S, Lengths, LengthSummary, with_requests
from paceline_autoscaler.output.scale_writer import StoredState, stored_of, stored_texts
from paceline_autoscaler.process import make_app
from paceline_autoscaler.signals.length_meter import FORGET_S, LengthMeter
from paceline_autoscaler.state import State
from paceline_core.registry.enums import RequestClass
from paceline_core.wire import LENGTH_BUCKETS, ClassLengths, DemandReport, ServiceDemand, length_bucket

INTERACTIVE, BATCH, _ = RequestClass
SIZES = st.lists(st.tuples(st.integers(1, 100_000), st.integers(1, 8_000)), max_size=20)


def counted(sizes: list[tuple[int, int]], name: RequestClass = INTERACTIVE) -> ClassLengths:
    prompts, outputs = [0] * LENGTH_BUCKETS, [0] * LENGTH_BUCKETS
    for prompt, output in sizes:
        prompts[length_bucket(prompt)] += 1
        outputs[length_bucket(output)] += 1
    return ClassLengths(
        name=name,
        requests=len(sizes),
        prompt_tokens=sum(prompt for prompt, _ in sizes),
        output_tokens=sum(output for _, output in sizes),
        prompts=tuple(prompts),
        outputs=tuple(outputs),
    )


def report(*lengths: ClassLengths, gateway: str = "g1", service: str = "default/chat") -> DemandReport:
    return DemandReport(
        gateway=gateway, started="a", services=(ServiceDemand(service=service, lengths=tuple(lengths)),)
    )


def requests(lengths: Lengths) -> dict[RequestClass, float]:
    return {one.name: one.requests for one in lengths}


@given(st.lists(SIZES, min_size=1, max_size=6))
def test_each_request_is_taken_once_however_often_gateways_report(parts: list[list[tuple[int, int]]]) -> None:
    meter, so_far, taken = LengthMeter(), list[tuple[int, int]](), LengthSummary(INTERACTIVE)
    meter.on(report(counted([(1, 1)])), 0.0)
    for number, part in enumerate(parts):
        so_far += part
        meter.on(report(counted([(1, 1), *so_far])), float(number))
        for one in meter.take("default/chat"):
            taken = taken.plus(one)
    assert taken.requests == len(so_far)
    assert taken.prompt_tokens == sum(prompt for prompt, _ in so_far)
    assert sum(taken.outputs) == len(so_far)
    assert meter.take("default/chat") == ()


def test_a_gateway_that_is_new_sets_the_baseline_and_one_that_began_anew_counts_whole() -> None:
    meter = LengthMeter()
    meter.on(report(counted([(100, 10)] * 9)), 0.0)
    assert meter.take("default/chat") == ()
    meter.on(report(counted([(100, 10)] * 4)), 1.0)
    assert requests(meter.take("default/chat")) == {INTERACTIVE: 4}


def test_a_service_without_a_summary_takes_all_that_gateways_have_counted() -> None:
    meter = LengthMeter()
    meter.on(report(counted([(100, 10)] * 9)), 0.0)
    meter.on(report(counted([(100, 10)] * 2), gateway="g2"), 0.0)
    meter.on(report(counted([(100, 10)] * 10)), 1.0)
    assert requests(meter.take("default/chat", whole=True)) == {INTERACTIVE: 12}
    assert meter.take("default/chat") == ()


def test_a_class_that_appears_later_counts_whole_and_services_are_told_apart() -> None:
    meter = LengthMeter()
    meter.on(report(counted([(100, 10)])), 0.0)
    meter.on(report(counted([(100, 10)]), counted([(9, 9)] * 2, BATCH)), 1.0)
    meter.on(report(counted([(5, 5)]), service="default/other"), 2.0)
    assert requests(meter.take("default/chat")) == {BATCH: 2}
    assert requests(meter.take("default/other")) == {INTERACTIVE: 1}


def test_most_reports_have_no_lengths_and_change_nothing() -> None:
    meter = LengthMeter()
    meter.on(report(counted([(100, 10)])), 0.0)
    meter.on(report(), 1.0)
    meter.on(report(counted([(100, 10)] * 2)), 2.0)
    assert requests(meter.take("default/chat")) == {INTERACTIVE: 1}


def test_a_gateway_that_was_silent_for_an_hour_is_a_new_one() -> None:
    meter = LengthMeter()
    meter.on(report(counted([(100, 10)])), 0.0)
    meter.on(report(counted([(100, 10)]), gateway="g2"), FORGET_S + 1)
    meter.on(report(counted([(100, 10)] * 5)), FORGET_S + 2)
    assert meter.take("default/chat") == ()


def test_older_requests_count_less() -> None:
    old = (LengthSummary(INTERACTIVE, 10.0, prompt_tokens=1000.0, prompts=(10.0,)),)
    (both,) = with_requests(old, [LengthSummary(INTERACTIVE, 2.0, prompts=(0.0, 2.0))], MEMORY_S)
    assert both.requests == pytest.approx(10 * exp(-1) + 2)
    assert both.prompts == pytest.approx((10 * exp(-1), 2.0))
    assert both.prompt_tokens == pytest.approx(1000 * exp(-1))


@given(SIZES.filter(bool), SIZES.filter(bool))
def test_what_is_stored_is_read_and_takes_little_room(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> None:
    kept = tuple(
        LengthSummary(c.name, c.requests, c.prompt_tokens, 0.0, c.output_tokens, c.prompts, c.outputs)
        for c in (counted(one), counted(other, BATCH))
    )
    texts = stored_texts(StoredState(lengths=kept))
    assert stored_of(texts).lengths == kept
    assert len(texts["lengths"]) < 2000


def test_a_release_without_lengths_and_one_with_more_are_understood() -> None:
    texts = stored_texts(StoredState())
    del texts["lengths"]
    assert stored_of(texts) == StoredState()
    newer = '[{"name": "interactive", "requests": 3.0, "deviations": [1, 2]}]'
    assert stored_of({**texts, "lengths": newer}).lengths == (LengthSummary(INTERACTIVE, 3.0),)


async def test_the_next_process_goes_on_from_what_was_stored_and_tells_it() -> None:
    cluster = FakeCluster()
    kept = (LengthSummary(INTERACTIVE, 50.0, 5000.0, 0.0, 500.0, (50.0,), (50.0,)),)
    cluster.states[CHAT] = stored_texts(StoredState(State(), lengths=kept))
    rig = Rig(cluster=cluster)
    await rig.start()
    rig.gateways.lengths.on(report(counted([(100, 10)])), 0.0)
    rig.gateways.lengths.on(report(counted([(100, 10)] * 6)), 0.0)
    await rig.seconds(1, ready=1)
    transport = httpx.ASGITransport(make_app(rig.autoscaler, rig.deps))
    async with httpx.AsyncClient(transport=transport, base_url="http://autoscaler") as http:
        told = (await http.get("/debug/learned", params={"service": "default/chat"})).json()
        unknown = await http.get("/debug/learned", params={"service": "default/other"})
    assert requests(stored_of(told["stored"]).lengths) == {INTERACTIVE: 55.0}
    assert (told["service"], told["now"], set(told["dollars_per_hour"])) == ("default/chat", rig.deps.now(), {"main"})
    assert (unknown.status_code, unknown.json()) == (404, {"error": "default/other is not scaled here"})
    await rig.autoscaler.close()
    assert requests(stored_of(cluster.states[CHAT]).lengths) == {INTERACTIVE: 55.0}

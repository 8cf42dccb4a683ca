"""The work of the past from counters: what the recorder of the present would have noted, with its gaps."""

from math import sin
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.autoscaler.factories import NOW, goal, observation
from tests.autoscaler.gateway_counters import INTERACTIVE, GatewayCounters, counts

from paceline_autoscaler.model.history import learn
from paceline_autoscaler.model.history_recorder import HistoryRecorder
from paceline_autoscaler.model.past_work import slots_of, work_histories
from paceline_autoscaler.model.unknown_work import filled
from paceline_autoscaler.model.work_history import BIN_S, RATES, WorkHistory
from paceline_autoscaler.signals.live import DemandMeter
from paceline_autoscaler.state import Knowledge, LearnedState, State
from paceline_autoscaler.types import Attainment
from paceline_core.registry.enums import QueryResult, RequestClass
from paceline_core.wire import ClassDemand, DemandReport, ServiceDemand

BEGIN = NOW - NOW % BIN_S
LEARNED = learn(observation(), State()).learned
SLOT_S = BIN_S / 3
ARRIVED = 0


def gateway(seconds: int, rate: float = 20.0, every: int = 5, name: str = "gateway-0") -> GatewayCounters:
    """One that counts `rate` requests a second, and is scraped every so many seconds."""
    made = GatewayCounters(name)
    for second in range(seconds + 1):
        if second % every == 0:
            made.scrape(BEGIN + second)
        made.add(counts(rate))
    return made


def history(*gateways: GatewayCounters, slot_s: float = SLOT_S) -> WorkHistory:
    slots = slots_of([made.scrapes for made in gateways], slot_s)
    found = dict(work_histories(goal(), LEARNED, slots, slot_s))
    return found.get("both", WorkHistory())


def rates(found: WorkHistory) -> list[list[float]]:
    return [[round(rate, 1) for rate in part] for part in found.segments()]


def test_work_is_what_the_recorder_notes_of_the_same_requests() -> None:
    """Requests come in waves with noise, a tenth of a replica-second each, and half of a prompt is cached."""
    random, live, exporter = Random(3), HistoryRecorder(), GatewayCounters()
    meter, state, knowledge, arrived, output = DemandMeter(), State(learned=LEARNED), Knowledge(), 0, 0
    measured = Attainment(QueryResult.VALUE, 60.0)
    for second in range(3 * 3600):
        now = BEGIN + second
        requests = sum(random.random() < 0.2 + 0.1 * sin(second / 600) for _ in range(100))
        exporter.add(counts(requests, cached=2000))
        arrived, output = arrived + requests, output + 100 * requests
        row = ClassDemand(
            name=INTERACTIVE,
            arrivals=arrived,
            prompt_tokens=4000 * arrived,
            completed=arrived,
            completed_prompt_tokens=4000 * arrived,
            cached_tokens=2000 * arrived,
            output_tokens=output,
            attended_pairs=2000 * 3000 * arrived,
            kv_reads=100 * 4050 * arrived,
        )
        report = DemandReport(
            gateway="g", started="a", services=(ServiceDemand(service="default/chat", classes=(row,)),)
        )
        meter.on(report, now)
        if second % 5 == 0:
            exporter.scrape(now)
            seen = observation(now=now, demand=meter.of("default/chat", now, 1, 1), attainment=measured)
            state = learn(seen, state)
            knowledge = live.knowledge(seen, state.learned, knowledge)
    noted, past = live.histories[0][1], history(exporter)
    shift = round((past.begin - noted.begin) / BIN_S)
    pairs = [
        (RATES[one], RATES[other]) for one, other in zip(noted.codes[shift:], past.codes, strict=False) if one and other
    ]
    assert len(pairs) > 350
    assert sorted(abs(one / other - 1) for one, other in pairs[10:])[int(0.95 * len(pairs)) - 10] < 0.11
    assert sum(one for one, _ in pairs) == pytest.approx(sum(other for _, other in pairs), rel=0.01)
    assert past.mean == pytest.approx(noted.mean, rel=0.02)
    assert past.dispersion == pytest.approx(noted.dispersion, rel=0.35)


def test_a_steady_gateway_gives_the_same_rate_in_each_bin_however_often_it_is_scraped() -> None:
    for every in (1, 5, 10, 15, 30, 60):
        found = rates(history(gateway(1800, every=every)))
        assert len(found) == 1
        assert {2.0} == {round(rate) for rate in found[0]}
        assert len(found[0]) >= 1800 / BIN_S - 4


def test_gateways_add_up() -> None:
    found = rates(history(gateway(900), gateway(900, rate=10, name="gateway-1")))
    assert set(found[0]) == {3.0}


def test_no_request_is_no_work_and_not_unknown() -> None:
    assert set(history(gateway(600, rate=0.0)).codes) == {1}
    busy = gateway(600)
    for second in range(600, 1200, 5):
        busy.scrape(BEGIN + second)
    assert rates(history(busy))[0][-15:] == [0.0] * 15


def test_a_time_in_which_one_gateway_was_not_scraped_is_not_known() -> None:
    """It was there before and after: the other one alone would tell too little."""
    silent = gateway(1800, name="gateway-1")
    silent.scrapes = [scrape for scrape in silent.scrapes if not 600 < scrape.at - BEGIN < 1200]
    found = history(gateway(1800), silent)
    assert [set(part) for part in rates(found)] == [{4.0}, {4.0}]
    assert found.codes.count(0) == 600 / BIN_S


def test_a_gateway_that_comes_or_goes_leaves_no_gap() -> None:
    first, second = gateway(900), gateway(1800, rate=40.0, name="gateway-1")
    first.scrapes, second.scrapes = first.scrapes, [scrape for scrape in second.scrapes if scrape.at >= BEGIN + 900]
    (found,) = rates(history(first, second))
    assert found[2] == 2.0
    assert found[-2] == 4.0


def test_counters_that_begin_anew_count_from_zero() -> None:
    made = GatewayCounters()
    for second in range(0, 1801, 5):
        if second == 900:
            made.restart()
        made.add(counts(100))
        made.scrape(BEGIN + second)
    (found,) = rates(history(made))
    assert set(found) == {2.0}


def test_a_class_without_a_target_is_no_work() -> None:
    made = GatewayCounters()
    for second in range(0, 901, 5):
        made.add(counts(100), RequestClass.OFFLINE)
        made.scrape(BEGIN + second)
    assert set(history(made).codes) == {1}


def test_without_a_known_speed_nothing_is_known() -> None:
    slots = slots_of([gateway(900).scrapes], SLOT_S)
    assert work_histories(goal(), LearnedState(), slots, SLOT_S) == ()


def test_coarse_days_and_the_fine_newest_one_join_without_a_gap() -> None:
    scrapes = gateway(3600).scrapes
    coarse, fine = GatewayCounters(), GatewayCounters()
    coarse.scrapes = [one for one in scrapes if one.at <= BEGIN + 1800]
    fine.scrapes = [one for one in scrapes if one.at >= BEGIN + 1710]
    (only,) = rates(filled(history(fine), history(coarse, slot_s=BIN_S)))
    assert set(only) == {2.0}
    assert len(only) >= 3600 / BIN_S - 3


STEPS = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 500)), min_size=1, max_size=40)


def scraped(steps: list[tuple[int, int]], unit_s: float) -> GatewayCounters:
    """One that is scraped after so many units of time, in which so many requests came."""
    made, now = GatewayCounters(), BEGIN
    made.scrape(now)
    for units, requests in steps:
        now += units * unit_s
        made.add(counts(requests))
        made.scrape(now)
    return made


@given(STEPS)
def test_every_request_is_counted_once(steps: list[tuple[int, int]]) -> None:
    slots = slots_of([scraped(steps, SLOT_S).scrapes], SLOT_S)
    found = sum(of[INTERACTIVE][ARRIVED] for of in slots.values())
    assert found == pytest.approx(sum(requests for _, requests in steps))
    assert len(slots) == sum(units for units, _ in steps)


@given(STEPS, st.floats(0.3, 9.9), st.sampled_from([SLOT_S, BIN_S]))
def test_no_rate_is_above_the_highest_between_two_scrapes(
    steps: list[tuple[int, int]], unit_s: float, slot_s: float
) -> None:
    """However scrapes lie to slots."""
    slots = slots_of([scraped(steps, unit_s).scrapes], slot_s)
    highest = max(requests / (units * unit_s) for units, requests in steps)
    assert all(0 <= of[INTERACTIVE][ARRIVED] <= slot_s * highest * (1 + 1e-5) for of in slots.values())

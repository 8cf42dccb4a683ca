"""Cumulative counters of gateways become rates, whatever restarts, stalls or goes missing."""

from dataclasses import astuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline_autoscaler.signals.live import DemandMeter
from paceline_autoscaler.types import ClassSignals as Demanded
from paceline_core.registry.enums import RequestClass
from paceline_core.wire import ClassDemand, DemandReport, ServiceDemand

SERVICE = "default/chat"
START = 1_000.0


def report(gateway: str = "g1", started: str = "a", service: str = SERVICE, **row: float) -> DemandReport:
    made = ClassDemand.model_validate({"name": "interactive", **row})
    return DemandReport(gateway=gateway, started=started, services=(ServiceDemand(service=service, classes=(made,)),))


def steady(meter: DemandMeter, seconds: int, per_second: int = 10, start: float = START) -> float:
    """Reports once a second of a gateway that takes so many requests of 100 prompt tokens; returns the time after."""
    for second in range(seconds + 1):
        count = second * per_second
        meter.on(
            report(arrivals=count, prompt_tokens=count * 100, output_tokens=count * 7, completed=count), start + second
        )
    return start + seconds


def interactive(meter: DemandMeter, now: float) -> Demanded:
    (found,) = meter.of(SERVICE, now, 1, 1).classes
    return found


def test_a_steady_stream_has_the_same_rate_in_every_window() -> None:
    meter = DemandMeter()
    now = steady(meter, 90)
    for flow in interactive(meter, now).flows:
        assert flow.arrivals / flow.seconds == pytest.approx(10)
        assert flow.prompt_tokens / flow.seconds == pytest.approx(1000)


def test_rates_right_after_the_start_are_over_the_time_that_has_passed() -> None:
    meter = DemandMeter()
    now = steady(meter, 4)
    assert [flow.seconds for flow in interactive(meter, now).flows] == [4, 4, 4]
    assert interactive(meter, now).flows[-1].arrivals == pytest.approx(40)


def test_what_a_gateway_counted_before_it_was_first_heard_is_not_recent() -> None:
    meter = DemandMeter()
    meter.on(report(arrivals=5000), START)
    meter.on(report(arrivals=5010), START + 1)
    assert interactive(meter, START + 2).flows[-1].arrivals == pytest.approx(10)


def test_a_restarted_gateway_counts_from_zero() -> None:
    meter = DemandMeter()
    meter.on(report(arrivals=5000), START)
    meter.on(report(arrivals=30, started="b"), START + 1)
    assert interactive(meter, START + 2).flows[-1].arrivals == pytest.approx(30)


def test_a_counter_that_falls_without_a_restart_is_taken_for_one() -> None:
    meter = DemandMeter()
    meter.on(report(arrivals=5000), START)
    meter.on(report(arrivals=30), START + 1)
    assert interactive(meter, START + 2).flows[-1].arrivals == pytest.approx(30)


def test_a_class_that_appears_in_a_known_gateway_started_at_zero() -> None:
    meter = DemandMeter()
    meter.on(DemandReport(gateway="g1", started="a"), START)
    meter.on(report(arrivals=4), START + 1)
    assert interactive(meter, START + 2).flows[-1].arrivals == pytest.approx(4)


def test_a_late_report_is_spread_over_the_silence_before_it() -> None:
    meter = DemandMeter()
    meter.on(report(arrivals=0), START)
    meter.on(report(arrivals=300), START + 30)
    short, middle, long = interactive(meter, START + 30).flows
    assert (short.arrivals, middle.arrivals, long.arrivals) == pytest.approx((50, 150, 300))


def test_gateways_are_summed_and_a_lost_one_loses_only_its_queue() -> None:
    meter = DemandMeter()
    for second in range(3):
        meter.on(report("g1", arrivals=10 * second, queued=2, held=1, in_flight=3), START + second)
        meter.on(report("g2", arrivals=20 * second, queued=5), START + second)
    both = interactive(meter, START + 2)
    assert (both.queued, both.held, both.in_flight) == (7, 1, 3)
    meter.on(report("g1", arrivals=30), START + 10)
    later = interactive(meter, START + 10)
    assert later.queued == 0
    assert later.flows[-1].arrivals == pytest.approx(30 + 40)


def test_output_per_request_is_of_the_window_once_enough_have_completed() -> None:
    meter = DemandMeter()
    meter.on(report(completed=100, output_tokens=100), START)
    assert interactive(meter, START + 1).output_tokens == 1.0
    meter.on(report(completed=110, output_tokens=600), START + 1)
    assert interactive(meter, START + 2).output_tokens == pytest.approx(50)


def test_what_completed_requests_took_is_of_the_longest_window() -> None:
    meter = DemandMeter()
    counts = {"completed_prompt_tokens": 1, "cached_tokens": 2, "output_tokens": 3, "attended_pairs": 4, "kv_reads": 5}
    for second in range(91):
        more = {name: 10 * second * each for name, each in counts.items()}
        meter.on(report("g1", "a", SERVICE, arrivals=second, completed=second, **more), START + second)
    found = interactive(meter, START + 90).completed
    assert found is not None
    assert astuple(found) == pytest.approx((60, 600, 1200, 1800, 2400, 3000))


def test_without_token_counts_of_workers_nothing_is_known_of_completed_requests() -> None:
    meter = DemandMeter()
    now = steady(meter, 3)
    assert interactive(meter, now).completed is None


def test_before_anything_completed_the_output_is_unknown() -> None:
    meter = DemandMeter()
    meter.on(report(arrivals=3), START)
    assert interactive(meter, START + 1).output_tokens is None


def test_tenants_of_a_class_are_summed_and_the_nearest_deadline_counts() -> None:
    rows = tuple(
        ClassDemand(name=RequestClass.BATCH, tenant=tenant, queued=queued, nearest_deadline_s=deadline)
        for tenant, queued, deadline in (("a", 1, 30.0), ("b", 2, None), ("c", 4, 12.5))
    )
    meter = DemandMeter()
    meter.on(DemandReport(gateway="g", started="a", services=(ServiceDemand(service=SERVICE, classes=rows),)), START)
    batch = interactive(meter, START + 1)
    assert (batch.name, batch.queued, batch.deadline_s) == (RequestClass.BATCH, 7, 12.5)


def test_a_service_nobody_asked_for_has_no_classes() -> None:
    meter = DemandMeter()
    steady(meter, 3)
    assert meter.of("default/other", START + 3, 2, 1).classes == ()


def test_the_meter_forgets_what_is_older_than_its_windows() -> None:
    meter = DemandMeter()
    now = steady(meter, 3)
    meter.on(DemandReport(gateway="g2", started="a"), now + 200)
    assert meter.of(SERVICE, now + 200, 1, 1).classes == ()


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.floats(0.05, 8), st.integers(0, 500), st.booleans()), min_size=1, max_size=40
    )
)
def test_rates_are_never_negative_and_never_more_than_was_counted(
    steps: list[tuple[int, float, int, bool]],
) -> None:
    meter, now, counts, starts, counted = DemandMeter(), START, [0, 0, 0], [0, 0, 0], 0
    for gateway, pause, arrivals, restart in steps:
        now += pause
        if restart:
            counts[gateway], starts[gateway] = 0, starts[gateway] + 1
        counts[gateway] += arrivals
        counted += arrivals
        meter.on(report(f"g{gateway}", str(starts[gateway]), arrivals=counts[gateway]), now)
        for cls in meter.of(SERVICE, now, 3, 3).classes:
            for flow in cls.flows:
                assert 0 <= flow.arrivals <= counted * (1 + 1e-9)
                assert flow.seconds >= 1

"""What requests cost on a replica, checked against step times worked out by hand."""

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.autoscaler.factories import INTERACTIVE, load

from paceline_autoscaler.model.capacity import (
    OUTPUT_PRIOR,
    TokenCost,
    TokenMix,
    mix_of,
    price,
    speed_of,
    work_level,
    work_rate,
)
from paceline_autoscaler.state import PoolSpeed
from paceline_autoscaler.types import ClassSignals, RateWindow
from paceline_core.registry.enums import RequestClass
from paceline_core.wire import StepTime
from paceline_planner.replica import LengthFactors, ReplicaModel

H100 = StepTime(base=6e-3, prefill=36e-6, sequence=4e-6, kv=4e-8)
SPEED = PoolSpeed("main", H100, slots=64, kv_tokens=400_000)


REPLICA = ReplicaModel(SPEED, step_tokens=2048, tpot_s=inf)
ALIKE = LengthFactors()


def test_a_prefill_bound_request_costs_its_tokens_and_its_part_of_each_step() -> None:
    unit = price(REPLICA, TokenMix(4096, 32), ALIKE, "both")
    steps = (4096 + 32) / 2048
    work = 4096 * 36e-6 + 32 * (4e-6 + 4e-8 * 4112)
    assert unit.of(1, 4096, 32) == pytest.approx(work + steps * 6e-3)
    assert unit.of(10, 40_960, 32) == pytest.approx(10 * unit.of(1, 4096, 32))
    assert unit.prompt * 4096 / unit.of(1, 4096, 32) == pytest.approx(4096 * 36e-6 / work)


def test_a_decode_bound_request_pays_steps_with_those_that_fit_beside_it() -> None:
    short = TokenMix(100, 100)
    work = 100 * 36e-6 + 100 * (4e-6 + 4e-8 * 150)
    assert price(REPLICA, short, ALIKE, "both").of(1, 100, 100) == pytest.approx(work + 100 / 64 * 6e-3)
    tight = replace(REPLICA, tpot_s=6e-3 + 0.1 * work)
    assert price(tight, short, ALIKE, "both").of(1, 100, 100) == pytest.approx(work + 6e-3 / 0.1)


def test_an_slo_that_no_step_keeps_is_served_one_by_one() -> None:
    work = 100 * 36e-6 + 100 * (4e-6 + 4e-8 * 150)
    for replica in (replace(REPLICA, tpot_s=1e-3), replace(REPLICA, speed=replace(SPEED, kv_tokens=10))):
        assert price(replica, TokenMix(100, 100), ALIKE, "both").of(1, 100, 100) == pytest.approx(work + 100 * 6e-3)


def test_what_is_cached_costs_no_computation_and_what_differs_in_length_costs_more() -> None:
    step = H100.model_copy(update={"context": 1e-9})
    replica = replace(REPLICA, speed=replace(SPEED, step_time=step))
    cached = price(replica, TokenMix(4096, 32), LengthFactors(cached=0.75), "both")
    work = 1024 * 36e-6 + 1e-9 * 1024 * (4096 - 512) + 32 * (4e-6 + 4e-8 * 4112)
    assert cached.of(1, 4096, 32) == pytest.approx(work + (1024 + 32) / 2048 * 6e-3)
    uneven = price(replica, TokenMix(4096, 32), LengthFactors(pairs=3.0, kv_reads=2.0), "both")
    work = 4096 * 36e-6 + 3e-9 * 4096**2 / 2 + 32 * (4e-6 + 2 * 4e-8 * 4112)
    assert uneven.of(1, 4096, 32) == pytest.approx(work + (4096 + 32) / 2048 * 6e-3)


def test_each_half_of_a_split_service_pays_for_its_half() -> None:
    mix = TokenMix(1000, 200)
    prefill, decode = price(REPLICA, mix, ALIKE, "prefill"), price(REPLICA, mix, ALIKE, "decode")
    assert (prefill.output, decode.prompt) == (0.0, 0.0)
    assert prefill.prompt * 1000 == pytest.approx(1000 * 36e-6 + 1000 / 2048 * 6e-3)
    assert decode.output * 200 == pytest.approx(200 * (4e-6 + 4e-8 * 1100) + 200 / 64 * 6e-3)


def test_where_tokens_take_no_time_of_their_own_a_request_pays_its_steps() -> None:
    fixed = replace(REPLICA, speed=replace(SPEED, step_time=StepTime(base=0.02, prefill=0.0)))
    assert price(fixed, TokenMix(100, 10), ALIKE, "both").of(1, 100, 10) == pytest.approx(0.02 * 10 / 64)


@given(prompt=st.floats(0, 1e6), output=st.floats(0, 1e5), cached=st.floats(0, 1), factor=st.floats(1, 20))
def test_a_cost_is_positive_and_never_less_with_less_in_the_cache(
    prompt: float, output: float, cached: float, factor: float
) -> None:
    mix = TokenMix(prompt, output)
    some, none = (LengthFactors(share, factor, factor) for share in (cached, 0.0))
    costs = [price(REPLICA, mix, factors, "both").of(1, max(prompt, 1), max(output, 1)) for factors in (some, none)]
    assert 0 < costs[0] <= costs[1] * (1 + 1e-9)


def arrivals(*windows: tuple[float, float], output: float | None = 10.0) -> ClassSignals:
    """(seconds, arrivals) of requests with 1000 prompt tokens."""
    return ClassSignals(INTERACTIVE, tuple(RateWindow(s, n, n * 1000) for s, n in windows), output_tokens=output)


UNIT = TokenCost(1e-4, 0.0)
"""A request of 1000 prompt tokens is a tenth of a replica-second."""


def test_the_long_window_gives_the_rate_when_nothing_changes() -> None:
    assert work_rate([arrivals((5, 50), (15, 150), (60, 600))], UNIT, None) == pytest.approx(1.0)


def test_the_level_is_the_rate_of_the_longest_window_over_all_classes() -> None:
    classes = [arrivals((5, 200), (60, 600)), ClassSignals(RequestClass.BATCH), arrivals((5, 0), (60, 300))]
    assert work_level(classes, UNIT, None) == pytest.approx(1.5)
    assert work_level([], UNIT, None) == 0.0


def test_windows_that_are_too_short_are_left_out_but_never_the_longest() -> None:
    step = [arrivals((5, 200), (15, 300), (60, 750))]
    assert work_rate(step, UNIT, None, 10.0) == pytest.approx(2.0)
    assert work_rate(step, UNIT, None, 100.0) == pytest.approx(1.25)


def test_a_step_shows_in_the_shortest_window() -> None:
    assert work_rate([arrivals((5, 200), (15, 300), (60, 750))], UNIT, None) == pytest.approx(4.0)


def test_classes_are_added_window_by_window() -> None:
    offline = ClassSignals(RequestClass.OFFLINE, arrivals((60, 600)).flows, output_tokens=1.0)
    assert work_rate([arrivals((60, 600)), offline], UNIT, None) == pytest.approx(2.0)


def test_nobody_asking_is_no_work() -> None:
    assert work_rate([], UNIT, None) == 0.0
    assert work_rate([arrivals((5, 0), (60, 0))], UNIT, None) == 0.0


def test_output_is_expected_as_asked_else_as_learned_else_by_the_prior() -> None:
    unit = TokenCost(0.0, 1.0)
    told, untold = arrivals((60, 60), output=10.0), arrivals((60, 60), output=None)
    assert work_rate([told], unit, 99.0) == pytest.approx(10.0)
    assert work_rate([untold], unit, 99.0) == pytest.approx(99.0)
    assert work_rate([untold], unit, None) == pytest.approx(OUTPUT_PRIOR)


def test_the_mean_request_is_weighted_by_arrivals() -> None:
    long = ClassSignals(RequestClass.BATCH, (RateWindow(60, 10, 100_000),), output_tokens=400.0)
    mixed = mix_of([arrivals((60, 30)), long], None)
    assert (mixed.prompt_tokens, mixed.output_tokens) == pytest.approx((3250, 107.5))
    assert mix_of([], 50.0) == TokenMix(0.0, 50.0)


@given(st.floats(1, 100), st.floats(1, 3))
def test_more_arrivals_never_mean_less_work(rate: float, factor: float) -> None:
    windows = tuple((s, s * rate) for s in (5.0, 15.0, 60.0))
    more = tuple((s, n * factor) for s, n in windows)
    assert work_rate([arrivals(*more)], UNIT, None) >= work_rate([arrivals(*windows)], UNIT, None)


def test_the_best_observed_replica_speaks_for_its_pool() -> None:
    prior, fitted = (
        H100.model_copy(update={"observations": 0}),
        H100.model_copy(update={"observations": 9, "base": 7e-3}),
    )
    found = speed_of("main", [load("a", step_time=fitted), load("b", step_time=prior)])
    assert found is not None
    assert found.step_time == fitted
    assert speed_of("main", [load("a", step_time=StepTime(base=0.0, prefill=0.0))]) is None
    assert speed_of("main", []) is None

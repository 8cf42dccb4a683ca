"""What one replica can do, checked against step times worked out by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.autoscaler.factories import INTERACTIVE, load

from paceline_autoscaler.model.capacity import (
    OUTPUT_PRIOR,
    TokenCost,
    TokenMix,
    feasible_batch,
    mix_of,
    price,
    speed_of,
    usable,
    work_rate,
)
from paceline_autoscaler.state import Knowledge, PoolSpeed
from paceline_autoscaler.types import ClassSignals, RateWindow
from paceline_core.registry.enums import RequestClass
from paceline_core.wire import StepTime

H100 = StepTime(base=6e-3, prefill=36e-6, sequence=4e-6, kv=4e-8)
SPEED = PoolSpeed("main", H100, slots=64, kv_tokens=400_000)


def test_a_prefill_bound_request_costs_its_prompt_and_little_else() -> None:
    unit = price(SPEED, TokenMix(4096, 32), None, 2048, "both")
    assert unit.prompt * 4096 == pytest.approx(4096 * 36e-6 + 2 * 6e-3)
    assert unit.output == pytest.approx(6e-3 / 64 + 4e-6 + 4e-8 * 4112)
    assert unit.of(10, 40_960, 32) == pytest.approx(10 * (4096 * unit.prompt + 32 * unit.output))


def test_attention_over_the_prompt_is_counted_at_half_its_length() -> None:
    step = H100.model_copy(update={"context": 1e-9})
    unit = price(PoolSpeed("main", step, 64, 400_000), TokenMix(4096, 32), None, 2048, "both")
    assert unit.prompt == pytest.approx(36e-6 + 6e-3 / 2048 + 1e-9 * 2048)


def test_the_batch_is_bound_by_slots_pages_and_the_tpot_slo() -> None:
    assert feasible_batch(SPEED, TokenMix(100, 100), None) == 64
    assert feasible_batch(SPEED, TokenMix(20_000, 100), None) == int(400_000 / 20_050)
    each = 4e-6 + 4e-8 * 150
    assert feasible_batch(SPEED, TokenMix(100, 100), 6e-3 + 10.5 * each) == 10


def test_an_slo_that_nobody_can_keep_is_served_one_by_one() -> None:
    assert feasible_batch(SPEED, TokenMix(100, 100), 1e-3) == 1
    assert feasible_batch(SPEED, TokenMix(10**9, 100), None) == 1


def test_each_half_of_a_split_service_pays_for_its_half() -> None:
    mix = TokenMix(1000, 200)
    whole = price(SPEED, mix, None, 2048, "both")
    assert price(SPEED, mix, None, 2048, "prefill") == TokenCost(whole.prompt, 0.0)
    assert price(SPEED, mix, None, 2048, "decode") == TokenCost(0.0, whole.output)


STAFFING = Knowledge().staffing


@pytest.mark.parametrize(("replicas", "share"), [(0, 0.8), (1, 0.8), (2, 0.85), (4, 0.9), (16, 0.95), (1000, 0.95)])
def test_large_pools_can_be_used_further(replicas: int, share: float) -> None:
    assert usable(replicas, STAFFING) == pytest.approx(share)


@given(st.integers(0, 200))
def test_one_more_replica_always_adds_capacity(replicas: int) -> None:
    assert (replicas + 1) * usable(replicas + 1, STAFFING) > replicas * usable(replicas, STAFFING)


def arrivals(*windows: tuple[float, float], output: float | None = 10.0) -> ClassSignals:
    """(seconds, arrivals) of requests with 1000 prompt tokens."""
    return ClassSignals(INTERACTIVE, tuple(RateWindow(s, n, n * 1000) for s, n in windows), output_tokens=output)


UNIT = TokenCost(1e-4, 0.0)
"""A request of 1000 prompt tokens is a tenth of a replica-second."""


def test_the_long_window_gives_the_rate_when_nothing_changes() -> None:
    assert work_rate([arrivals((5, 50), (15, 150), (60, 600))], UNIT, None) == pytest.approx(1.0)


def test_a_step_is_believed_as_soon_as_it_is_surely_there() -> None:
    rate = work_rate([arrivals((5, 200), (15, 300), (60, 750))], UNIT, None)
    assert 3.0 < rate < 4.0


def test_a_few_early_requests_are_not_taken_for_a_step() -> None:
    assert work_rate([arrivals((5, 4), (15, 4), (60, 6))], UNIT, None) == pytest.approx(0.01)


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
    assert speed_of("main", []) is None

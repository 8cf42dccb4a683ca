"""How many requests a replica sustains, by each of the bounds of its steps."""

from dataclasses import astuple, replace

import pytest

from paceline_autoscaler.policies.fluid_types import DemandBin
from paceline_autoscaler.state import PoolSpeed
from paceline_autoscaler.types import CompletedRequests
from paceline_core.wire import StepTime
from paceline_planner.replica import LengthFactors, ReplicaModel, mean_request

STEP = StepTime(base=0.01, prefill=5e-5, sequence=1e-4, kv=1e-7, context=1e-9)
SPEED = PoolSpeed("main", STEP, slots=10_000, kv_tokens=100_000_000)
BIN = DemandBin(10, 10_000, 1_000, 0, 10 * 1000**2 / 2, 10 * 100 * 1050)
"""Ten requests of 1,000 prompt and 100 output tokens."""
MODEL = ReplicaModel(SPEED, step_tokens=1_000_000, tpot_s=0.1)
WORK = 0.05 + 1e-9 * 500_000 + 100 * (1e-4 + 1e-7 * 1050)


def test_a_mix_is_the_mean_request_and_its_work() -> None:
    mix = BIN.mix(STEP)
    assert (mix.prompt, mix.uncached, mix.output, mix.held_tokens) == (1000, 1000, 100, 1050)
    assert mix.prefill_s + mix.decode_s == pytest.approx(WORK)


def test_cached_tokens_are_no_work_but_are_read() -> None:
    mix = replace(BIN, cached_tokens=9000, attended_pairs=10 * 100 * 950).mix(STEP)
    assert mix.prefill_s == pytest.approx(100 * 5e-5 + 1e-9 * 100 * 950)
    assert mix.decode_s == BIN.mix(STEP).decode_s


def test_the_tpot_limit_bounds_the_work_of_a_step() -> None:
    assert MODEL.sustainable(BIN.mix(STEP)) == pytest.approx((1 - 0.01 / 0.1) / WORK)


def test_a_step_has_room_for_so_many_tokens() -> None:
    each = 550 / 1100
    assert replace(MODEL, step_tokens=550).sustainable(BIN.mix(STEP)) == pytest.approx(each / (0.01 + each * WORK))


@pytest.mark.parametrize("speed", [replace(SPEED, slots=50), replace(SPEED, kv_tokens=50 * 1050)])
def test_slots_and_kv_tokens_bound_the_sequences(speed: PoolSpeed) -> None:
    model = replace(MODEL, speed=speed)
    assert model.sustainable(BIN.mix(STEP)) == pytest.approx(0.5 / (0.01 + 0.5 * WORK))
    assert model.most_running(1050) == 50


def test_prompts_take_what_decodes_leave_of_the_longest_step() -> None:
    mix = BIN.mix(STEP)
    decode_s = MODEL.decode_step_s(100, 1050)
    assert decode_s == pytest.approx(0.01 + 100 * (1e-4 + 1e-7 * 1050))
    assert MODEL.prefill_share(100, decode_s, mix) == pytest.approx(1 - decode_s / 0.1)
    assert MODEL.prefill_share(10_000, MODEL.decode_step_s(10_000, 1050), mix) == 0.0


def test_a_step_computes_its_least_part_of_a_prompt_even_if_it_takes_too_long() -> None:
    mix, model = BIN.mix(STEP), replace(MODEL, tpot_s=0.001, min_prefill=16)
    assert replace(model, min_prefill=0).prefill_step_s(100, 0.02, mix) == 0.0
    assert model.prefill_step_s(100, 0.02, mix) == pytest.approx(16 * mix.prefill_s / 1000)
    assert replace(model, step_tokens=108).prefill_step_s(100, 0.02, mix) == pytest.approx(8 * mix.prefill_s / 1000)


def test_an_idle_replica_fills_its_steps_with_prompts() -> None:
    model, mix = replace(MODEL, step_tokens=4000), BIN.mix(STEP)
    assert model.prefill_share(0.0, 0.01, mix) == pytest.approx(4 * mix.prefill_s / (0.01 + 4 * mix.prefill_s))


def test_completed_requests_tell_how_much_more_they_take_than_one_of_their_mean_lengths() -> None:
    """One of 3,000 tokens, half of it cached, with an answer of 300; one of 1,000 with one of 100."""
    pairs = 1500 * (3000 - 750) + 1000 * 500
    completed = CompletedRequests(2, 4000, 1500, 400, pairs, 300 * 3150 + 100 * 1050)
    factors = LengthFactors.of(completed)
    assert factors.cached == 0.375
    assert factors.pairs == pytest.approx(pairs / 2 / (1250 * (2000 - 625)))
    assert factors.kv_reads == pytest.approx((300 * 3150 + 100 * 1050) / 2 / (200 * 2100))
    mean = mean_request(2000, 200, factors, STEP, "both")
    assert mean.uncached == 1250
    assert mean.prefill_s == pytest.approx((2500 * 5e-5 + pairs * 1e-9) / 2)
    assert mean.decode_s == pytest.approx((400 * 1e-4 + (300 * 3150 + 100 * 1050) * 1e-7) / 2)


def test_requests_that_are_all_alike_need_no_factors() -> None:
    assert LengthFactors.of(CompletedRequests(10, 10_000, 0, 1_000, 10 * 500_000, 10 * 100 * 1050)) == LengthFactors()
    mean = mean_request(1000, 100, LengthFactors(), STEP, "both")
    assert astuple(mean) == pytest.approx(astuple(BIN.mix(STEP)))
    assert LengthFactors.of(CompletedRequests(1, 5, 5, 0, 0, 0)) == LengthFactors(cached=1.0)


def test_a_request_takes_the_time_of_a_replica_that_is_full_of_its_kind() -> None:
    mix = BIN.mix(STEP)
    assert MODEL.request_s(mix) == pytest.approx(1 / MODEL.sustainable(mix))
    assert replace(MODEL, tpot_s=0.005).request_s(mix) == pytest.approx(100 * 0.01 + WORK)

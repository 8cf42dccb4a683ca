"""How many requests a replica sustains, by each of the bounds of its steps."""

from dataclasses import replace

import pytest

from paceline_autoscaler.policies.fluid_replica import ReplicaModel, mix_of
from paceline_autoscaler.policies.fluid_types import DemandBin
from paceline_autoscaler.state import PoolSpeed
from paceline_core.wire import StepTime

STEP = StepTime(base=0.01, prefill=5e-5, sequence=1e-4, kv=1e-7, context=1e-9)
SPEED = PoolSpeed("main", STEP, slots=10_000, kv_tokens=100_000_000)
BIN = DemandBin(10, 10_000, 1_000, 0, 10 * 1000**2 / 2, 10 * 100 * 1050)
"""Ten requests of 1,000 prompt and 100 output tokens."""
MODEL = ReplicaModel(SPEED, step_tokens=1_000_000, tpot_s=0.1)
WORK = 0.05 + 1e-9 * 500_000 + 100 * (1e-4 + 1e-7 * 1050)


def test_a_mix_is_the_mean_request_and_its_work() -> None:
    mix = mix_of(BIN, SPEED)
    assert (mix.prompt, mix.uncached, mix.output, mix.held_tokens) == (1000, 1000, 100, 1050)
    assert mix.prefill_s + mix.decode_s == pytest.approx(WORK)


def test_cached_tokens_are_no_work_but_are_read() -> None:
    mix = mix_of(replace(BIN, cached_tokens=9000, attended_pairs=10 * 100 * 950), SPEED)
    assert mix.prefill_s == pytest.approx(100 * 5e-5 + 1e-9 * 100 * 950)
    assert mix.decode_s == mix_of(BIN, SPEED).decode_s


def test_the_tpot_limit_bounds_the_work_of_a_step() -> None:
    assert MODEL.sustainable(mix_of(BIN, SPEED)) == pytest.approx((1 - 0.01 / 0.1) / WORK)


def test_a_step_has_room_for_so_many_tokens() -> None:
    each = 550 / 1100
    assert replace(MODEL, step_tokens=550).sustainable(mix_of(BIN, SPEED)) == pytest.approx(each / (0.01 + each * WORK))


@pytest.mark.parametrize("speed", [replace(SPEED, slots=50), replace(SPEED, kv_tokens=50 * 1050)])
def test_slots_and_kv_tokens_bound_the_sequences(speed: PoolSpeed) -> None:
    model = replace(MODEL, speed=speed)
    assert model.sustainable(mix_of(BIN, SPEED)) == pytest.approx(0.5 / (0.01 + 0.5 * WORK))
    assert model.most_running(1050) == 50


def test_prompts_take_what_decodes_leave_of_the_longest_step() -> None:
    mix = mix_of(BIN, SPEED)
    decode_s = MODEL.decode_step_s(100, 1050)
    assert decode_s == pytest.approx(0.01 + 100 * (1e-4 + 1e-7 * 1050))
    assert MODEL.prefill_share(100, decode_s, mix) == pytest.approx(1 - decode_s / 0.1)
    assert MODEL.prefill_share(10_000, MODEL.decode_step_s(10_000, 1050), mix) == 0.0


def test_an_idle_replica_fills_its_steps_with_prompts() -> None:
    model, mix = replace(MODEL, step_tokens=4000), mix_of(BIN, SPEED)
    assert model.prefill_share(0.0, 0.01, mix) == pytest.approx(4 * mix.prefill_s / (0.01 + 4 * mix.prefill_s))

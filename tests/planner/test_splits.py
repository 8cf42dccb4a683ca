"""Tensor, pipeline and expert splits: bytes of each device, seconds of a step, and what is refused."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.every import cases

from paceline_core.errors import InvalidInput
from paceline_planner.accelerators import CPU, H100, L4
from paceline_planner.hardware import Accelerator
from paceline_planner.memory import fits, kv_tokens
from paceline_planner.shapes import CATALOGUE, LLAMA_3_1_8B, LLAMA_3_1_405B, LLAMA_3_3_70B, MIXTRAL_8X7B, ModelShape
from paceline_planner.splits import DeviceSplit, check_split, splits, stage_weight_bytes
from paceline_planner.steptime import StepWork, step_parts, step_seconds


def test_a_pipeline_of_two_takes_half_of_the_layers_and_one_matrix_of_the_vocabulary() -> None:
    half = stage_weight_bytes(LLAMA_3_3_70B, DeviceSplit(1, 2))
    layers = (LLAMA_3_3_70B.parameters - 2 * 128256 * 8192) / 2
    assert half == pytest.approx((layers + 128256 * 8192) * 2, rel=1e-6)


def test_a_pipeline_of_126_layers_over_four_leaves_32_to_the_largest_stage() -> None:
    assert stage_weight_bytes(LLAMA_3_1_405B, DeviceSplit(1, 4)) > LLAMA_3_1_405B.weight_bytes / 4
    assert not fits(LLAMA_3_1_405B, H100, context=1, split=DeviceSplit(8)).fits
    assert fits(LLAMA_3_1_405B, H100, context=8192, split=DeviceSplit(8, 2)).fits


def test_stages_take_as_long_together_as_one_device_and_pass_the_activations_on() -> None:
    work = StepWork(sequences=8, kv_tokens=8000)
    alone, staged = step_parts(LLAMA_3_3_70B, H100, work), step_parts(LLAMA_3_3_70B, H100, work, DeviceSplit(1, 4))
    assert staged.link == pytest.approx(3 * (8e-6 + 8 * 8192 * 2 / (450e9 * 0.8)))
    assert staged.seconds - staged.link == alone.seconds


def test_experts_that_are_spread_exchange_tokens_in_place_of_one_all_reduce() -> None:
    work = StepWork(prefill_tokens=1000)
    cut, spread = (step_parts(MIXTRAL_8X7B, H100, work, split) for split in (DeviceSplit(4), DeviceSplit(4, 1, 4)))
    state, rate = 1000 * 4096 * 2, 450e9 * 0.8
    reduce, exchange = 8e-6 + 1.5 * state / rate, 8e-6 + 2 * 0.75 * state / 4 / rate
    assert cut.link == pytest.approx(32 * 2 * reduce)
    assert spread.link == pytest.approx(32 * (reduce + 2 * exchange))
    assert replace(spread, link=0.0) == replace(cut, link=0.0)


@cases(
    ("shape", "accelerator", "split", "message"),
    [
        (LLAMA_3_1_8B, H100, DeviceSplit(3), "tensor: 3 devices cannot share the 8 KV heads"),
        (LLAMA_3_1_8B, H100, DeviceSplit(1, 33), "pipeline: 33 stages cannot share the 32 layers"),
        (LLAMA_3_1_8B, H100, DeviceSplit(2, 1, 2), "expert: 2 devices cannot share the no experts of llama"),
        (MIXTRAL_8X7B, H100, DeviceSplit(2, 1, 4), "expert: 4 must divide the 2 devices"),
        (LLAMA_3_1_8B, CPU, DeviceSplit(2), "tensor: cpu has no link"),
    ],
)
def test_a_split_that_cannot_be_names_its_degree(
    shape: ModelShape, accelerator: Accelerator, split: DeviceSplit, message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        check_split(shape, accelerator, split)


def test_all_splits_of_a_node_are_found_those_of_fewer_devices_first() -> None:
    found = list(splits(MIXTRAL_8X7B, H100, 4))
    assert [(one.tensor, one.pipeline, one.expert) for one in found] == [
        (1, 1, 1), (2, 1, 1), (2, 1, 2), (1, 2, 1), (4, 1, 1), (4, 1, 4), (2, 2, 1), (1, 4, 1)
    ]  # fmt: skip
    assert list(splits(LLAMA_3_1_8B, CPU)) == [DeviceSplit()]
    assert [str(one) for one in (DeviceSplit(), DeviceSplit(4, 2), DeviceSplit(4, 1, 4))] == [
        "-",
        "tensor 4, pipeline 2",
        "tensor 4, expert 4",
    ]


@given(shape=st.sampled_from(list(CATALOGUE.values())), accelerator=st.sampled_from([H100, L4]))
def test_more_stages_hold_more_tokens_and_speed_up_nothing(shape: ModelShape, accelerator: Accelerator) -> None:
    held = [kv_tokens(shape, accelerator, split=DeviceSplit(1, stages)) for stages in (1, 2, 4, 8)]
    assert held == sorted(held)
    work = StepWork(512, 256, 8, 8000)
    assert step_seconds(shape, accelerator, work, DeviceSplit(1, 2)) >= step_seconds(shape, accelerator, work)

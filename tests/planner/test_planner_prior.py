"""The linear prior stays within its stated distance of the roofline over a grid of steps."""

from itertools import product

import pytest

from paceline_planner.accelerators import CPU, H100, H200, L4
from paceline_planner.hardware import Accelerator
from paceline_planner.shapes import CATALOGUE, LLAMA_3_1_8B, LLAMA_3_3_70B, ModelShape
from paceline_planner.splits import DeviceSplit
from paceline_planner.steptime import DEFAULT_CAPS, Caps, StepWork, prior, step_seconds

GPUS = pytest.mark.parametrize("accelerator", [H100, H200, L4], ids=lambda item: item.name)
DENSE = [shape for shape in CATALOGUE.values() if shape.experts is None and shape.parameters > 8e9]
SHAPES = pytest.mark.parametrize("shape", DENSE, ids=lambda item: item.name)
SHARES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0)
CONTEXTS = (0, 500, 4000, 16000)


def errors(shape: ModelShape, accelerator: Accelerator, caps: Caps, prefill_shares: tuple[float, ...]) -> list[float]:
    """Relative error of the prior at each point of the grid: prefill share x sequences x context."""
    model = prior(shape, accelerator, caps=caps)
    found = []
    for share, part, context in product(prefill_shares, SHARES, CONTEXTS):
        sequences = int(caps.sequences * part)
        prefill = min(int(caps.step_tokens * share), caps.step_tokens - sequences)
        if prefill + sequences == 0:
            continue
        work = StepWork(prefill, context, sequences, sequences * context)
        said = model.seconds(
            prefill_tokens=prefill, sequences=sequences, kv_tokens=work.kv_tokens, context=work.context
        )
        found.append(said / step_seconds(shape, accelerator, work) - 1)
    return found


@SHAPES
@GPUS
def test_decode_steps_are_met_within_a_tenth_of_a_percent(shape: ModelShape, accelerator: Accelerator) -> None:
    assert max(map(abs, errors(shape, accelerator, DEFAULT_CAPS, (0.0,)))) <= 0.001


@SHAPES
@GPUS
def test_steps_of_half_prefill_or_more_are_met_within_5_below_and_20_above(
    shape: ModelShape, accelerator: Accelerator
) -> None:
    found = errors(shape, accelerator, DEFAULT_CAPS, (0.5, 0.75, 1.0))
    assert min(found) >= -0.05
    assert max(found) <= 0.20


@SHAPES
@GPUS
@pytest.mark.parametrize("step_tokens", [1024, 2048, 8192])
def test_no_step_is_understated_by_more_than_10_or_overstated_by_more_than_90_percent(
    shape: ModelShape, accelerator: Accelerator, step_tokens: int
) -> None:
    found = errors(shape, accelerator, Caps(step_tokens, step_tokens // 16), SHARES)
    assert min(found) >= -0.10
    assert max(found) <= 0.90


@SHAPES
def test_the_cpu_whose_corner_lies_at_few_sequences_is_overstated_by_less_than_double(shape: ModelShape) -> None:
    found = errors(shape, CPU, DEFAULT_CAPS, SHARES)
    assert min(found) >= -0.01
    assert max(found) < 1.0


def test_a_full_prefill_step_and_a_full_decode_step_are_exact() -> None:
    caps = Caps(4096, 128)
    model = prior(LLAMA_3_1_8B, H100, caps=caps)
    prefill = step_seconds(LLAMA_3_1_8B, H100, StepWork(4096, 2048.0))
    assert model.seconds(prefill_tokens=4096, sequences=0, kv_tokens=0, context=2048.0) == pytest.approx(prefill)
    decode = step_seconds(LLAMA_3_1_8B, H100, StepWork(sequences=128, kv_tokens=500_000))
    assert model.seconds(prefill_tokens=0, sequences=128, kv_tokens=500_000) == pytest.approx(decode)


def test_a_prior_counts_no_observations_and_has_no_negative_coefficient() -> None:
    model = prior(LLAMA_3_3_70B, H200, split=DeviceSplit(4))
    assert model.observations == 0
    assert min(model.base, model.prefill, model.sequence, model.kv, model.context) >= 0


def test_a_split_replica_has_the_prior_of_its_split() -> None:
    one, four = prior(LLAMA_3_3_70B, H200), prior(LLAMA_3_3_70B, H200, split=DeviceSplit(4))
    assert four.kv == pytest.approx(one.kv / 4)
    assert one.base / 4 < four.base < one.base / 2


@SHAPES
@pytest.mark.parametrize("accelerator", [H100, H200, L4, CPU], ids=lambda item: item.name)
@pytest.mark.parametrize("step_tokens", [1, 16, 64])
def test_a_prompts_token_takes_time_however_few_tokens_a_step_may_hold(
    shape: ModelShape, accelerator: Accelerator, step_tokens: int
) -> None:
    """Where steps only read, a token more costs nothing by the roofline; an engine divides by this all the same."""
    model = prior(shape, accelerator, caps=Caps(step_tokens, min(step_tokens, 8)))
    assert model.prefill > 0
    assert model.sequence >= 0

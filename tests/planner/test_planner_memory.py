"""What fits where, by hand and by property."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from paceline_core.errors import InvalidInput
from paceline_planner.accelerators import CATALOGUE as ACCELERATORS
from paceline_planner.accelerators import CPU, H100, H200, L4
from paceline_planner.hardware import Accelerator
from paceline_planner.memory import fits, kv_tokens, reserve_bytes
from paceline_planner.shapes import CATALOGUE, LLAMA_3_1_8B, LLAMA_3_3_70B, QWEN3_32B, ModelShape
from paceline_planner.splits import DeviceSplit
from paceline_planner.steptime import Caps

shapes = st.sampled_from(list(CATALOGUE.values()))
accelerators = st.sampled_from([H100, H200, L4])


def test_an_h200_keeps_0_90_million_tokens_of_an_8b_and_0_26_million_of_a_32b() -> None:
    assert kv_tokens(LLAMA_3_1_8B, H200) == pytest.approx(0.90e6, rel=0.01)
    assert kv_tokens(QWEN3_32B, H200) == pytest.approx(0.26e6, rel=0.01)


def test_the_tokens_are_what_weights_and_reserve_leave() -> None:
    rest = int(80e9 * 0.95) - 8_030_261_248 * 2 - reserve_bytes(LLAMA_3_1_8B)
    assert kv_tokens(LLAMA_3_1_8B, H100) == rest // (128 * 1024)


def test_the_reserve_holds_a_steps_activations_and_the_logits() -> None:
    widths = 3 * 4096 + 4096 + 2 * 1024 + 3 * 14336
    assert reserve_bytes(LLAMA_3_1_8B, Caps(1024, 16)) == 1024 * widths * 2 + 16 * 128256 * 4


def test_a_70b_needs_two_h200_and_says_why() -> None:
    alone = fits(LLAMA_3_3_70B, H200, context=8192)
    assert not alone.fits
    assert alone.reason == (
        "llama-3.3-70b: weights of 141.1 GB and 0.5 GB of activations in 133.9 GB usable on 1 x h200 leave no room "
        "for a KV cache; use more devices, a larger one, or fewer bytes per weight."
    )
    pair = fits(LLAMA_3_3_70B, H200, context=8192, split=DeviceSplit(2))
    assert pair.fits
    assert pair.reason.endswith(f"leave room for {pair.kv_tokens:,} KV tokens, 46 sequences of 8,192.")


def test_a_context_longer_than_the_cache_is_refused_with_the_number_that_fits() -> None:
    answer = fits(LLAMA_3_1_8B, L4, context=131072)
    assert not answer.fits
    assert f"{answer.kv_tokens:,} KV tokens, less than one sequence of 131,072; shorten maxModelLen" in answer.reason


@pytest.mark.parametrize("tensor", [0, -1, 3, 16])
def test_a_tensor_degree_that_cuts_a_head_is_refused(tensor: int) -> None:
    with pytest.raises(InvalidInput, match="cannot share the 8 KV heads"):
        kv_tokens(LLAMA_3_1_8B, H100, split=DeviceSplit(tensor))


def test_devices_without_a_link_cannot_share_a_model() -> None:
    with pytest.raises(InvalidInput, match="cpu has no link"):
        kv_tokens(LLAMA_3_1_8B, CPU, split=DeviceSplit(2))


@given(shape=shapes, accelerator=accelerators, tensor=st.sampled_from([1, 2, 4]), sequences=st.integers(1, 512))
def test_more_devices_hold_more_and_larger_caps_hold_less(
    shape: ModelShape, accelerator: Accelerator, tensor: int, sequences: int
) -> None:
    assume(shape.kv_heads % (2 * tensor) == 0)
    caps = Caps(2048, sequences)
    tokens = kv_tokens(shape, accelerator, caps=caps, split=DeviceSplit(tensor))
    assert kv_tokens(shape, accelerator, caps=caps, split=DeviceSplit(2 * tensor)) >= tokens
    assert kv_tokens(shape, accelerator, caps=Caps(4096, sequences), split=DeviceSplit(tensor)) <= tokens
    assert kv_tokens(shape, accelerator, caps=Caps(2048, sequences + 64), split=DeviceSplit(tensor)) <= tokens


@given(shape=shapes, accelerator=st.sampled_from(list(ACCELERATORS.values())), context=st.integers(1, 1 << 20))
def test_the_parts_of_an_answer_never_exceed_the_memory(
    shape: ModelShape, accelerator: Accelerator, context: int
) -> None:
    answer = fits(shape, accelerator, context=context)
    assert answer.fits == (answer.kv_tokens >= context)
    if answer.fits:
        assert answer.weight_bytes + answer.reserve_bytes + answer.kv_bytes <= accelerator.memory

"""Shapes counted by hand and against the published totals."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.every import cases

from paceline_core.errors import InvalidInput
from paceline_planner.hardware import Dtype
from paceline_planner.shapes import (
    CATALOGUE,
    FP8,
    INT4,
    LLAMA_3_1_8B,
    LLAMA_3_1_405B,
    LLAMA_3_2_1B,
    LLAMA_3_3_70B,
    MIXTRAL_8X7B,
    QWEN3_0_6B,
    QWEN3_14B,
    QWEN3_30B_A3B,
    QWEN3_32B,
    Experts,
    ModelShape,
    shape,
)


@cases(
    ("model", "total"),
    [
        (LLAMA_3_2_1B, 1_235_814_400),
        (LLAMA_3_1_8B, 8_030_261_248),
        (LLAMA_3_3_70B, 70_553_706_496),
        (LLAMA_3_1_405B, 405_853_388_800),
        (QWEN3_0_6B, 596_049_920),
        (QWEN3_14B, 14_768_307_200),
        (QWEN3_32B, 32_762_123_264),
        (QWEN3_30B_A3B, 30_532_122_624),
        (MIXTRAL_8X7B, 46_702_792_704),
    ],
)
def test_parameters_equal_the_totals_of_the_published_checkpoints(model: ModelShape, total: int) -> None:
    assert model.parameters == total


def test_a_70b_token_takes_320_kib_of_kv_cache_so_4k_tokens_take_1_34_gb() -> None:
    assert LLAMA_3_3_70B.kv_bytes_per_token == 2 * 80 * 8 * 128 * 2 == 320 * 1024
    assert round(4096 * LLAMA_3_3_70B.kv_bytes_per_token / 1e9, 2) == 1.34


def test_an_8b_token_takes_128_kib_and_a_32b_token_256_kib() -> None:
    assert LLAMA_3_1_8B.kv_bytes_per_token == 128 * 1024
    assert QWEN3_32B.kv_bytes_per_token == 256 * 1024


def test_a_step_of_the_8b_reads_its_matrices_without_the_embedding() -> None:
    per_layer = 4096 * 4096 * 2 + 2 * 4096 * 1024 + 3 * 4096 * 14336
    assert LLAMA_3_1_8B.read_bytes == 2 * (32 * per_layer + 128256 * 4096) == 15_009_316_864


def test_an_eight_bit_cache_halves_the_bytes_of_a_token() -> None:
    assert replace(LLAMA_3_1_8B, kv_dtype=Dtype.FP8).kv_bytes_per_token == 64 * 1024


def test_a_tied_model_counts_its_vocabulary_matrix_once() -> None:
    tied = replace(LLAMA_3_1_8B, tied=True)
    assert LLAMA_3_1_8B.parameters - tied.parameters == 128256 * 4096


def test_an_unknown_shape_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidInput, match=r"model: 'gpt-5' is not a known shape; use one of llama-3\.2-1b, "):
        shape("gpt-5")


def test_every_shape_is_found_by_its_own_name() -> None:
    assert all(shape(name).name == name for name in CATALOGUE)


@given(
    field=st.sampled_from(["layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab"]),
    more=st.integers(1, 64),
)
def test_no_count_falls_when_the_model_grows(field: str, more: int) -> None:
    larger = replace(QWEN3_32B, **{field: getattr(QWEN3_32B, field) + more})
    assert larger.parameters > QWEN3_32B.parameters
    assert larger.read_bytes >= QWEN3_32B.read_bytes
    assert larger.kv_bytes_per_token >= QWEN3_32B.kv_bytes_per_token


def test_a_token_passes_13_of_mixtrals_47_and_3_of_qwens_31_billion_parameters() -> None:
    assert (MIXTRAL_8X7B.active_matrices + MIXTRAL_8X7B.vocabulary) / 1e9 == pytest.approx(12.88, abs=0.01)
    assert (QWEN3_30B_A3B.active_matrices + QWEN3_30B_A3B.vocabulary) / 1e9 == pytest.approx(3.35, abs=0.01)


def test_a_step_reads_the_experts_that_its_tokens_choose() -> None:
    experts = Experts(8, 2, 14336)
    assert experts.touched(1) == pytest.approx(2)
    assert experts.touched(4) == pytest.approx(8 * (1 - 0.75**4))
    assert experts.touched(1000) == pytest.approx(8)
    one, many = MIXTRAL_8X7B.step_matrix_bytes(1), MIXTRAL_8X7B.step_matrix_bytes(1000)
    assert one == pytest.approx(MIXTRAL_8X7B.active_matrices * 2)
    assert many == pytest.approx(MIXTRAL_8X7B.stored_matrices * 2)


def test_an_8b_in_awq_takes_5_7_gb_and_a_70b_in_four_bits_fits_48_gb() -> None:
    """The AWQ checkpoint of Llama 3.1 8B (hugging-quants) has 5.7 GB: 4 bits, scales, and the vocabulary in 16 bits."""
    assert replace(LLAMA_3_1_8B, quantization=INT4).weight_bytes / 1e9 == pytest.approx(5.73, abs=0.01)
    assert replace(LLAMA_3_3_70B, quantization=INT4).weight_bytes / 1e9 == pytest.approx(39.8, abs=0.1)
    assert replace(LLAMA_3_3_70B, quantization=FP8).weight_bytes / 1e9 == pytest.approx(72.7, abs=0.1)

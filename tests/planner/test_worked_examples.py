"""Worked examples of the field, each with its source; `docs/common-errors.md` names what is often said instead."""

import re
from dataclasses import replace
from itertools import product
from math import prod
from pathlib import Path

import pytest
from tests.every import cases

from paceline_planner.accelerators import A100, H100, H200, RTX_4090
from paceline_planner.hardware import Dtype
from paceline_planner.memory import kv_tokens
from paceline_planner.shapes import (
    CATALOGUE,
    INT4,
    LLAMA_3_1_8B,
    LLAMA_3_1_405B,
    LLAMA_3_3_70B,
    MIXTRAL_8X7B,
    QWEN3_32B,
    ModelShape,
)
from paceline_planner.steptime import StepWork, step_parts

ERRORS = (Path(__file__).parents[2] / "docs" / "common-errors.md").read_text()
OPT_13B = replace(LLAMA_3_1_8B, layers=40, hidden=5120, heads=40, kv_heads=40)
LLAMA_2_7B = replace(LLAMA_3_1_8B, kv_heads=32)


def said(text: str) -> bool:
    """Whether the page of common errors has this figure."""
    return re.search(rf"(?<![\d.]){re.escape(text)}(?![\d]|\.\d)", ERRORS) is not None


@cases(
    ("shape", "weights", "kib", "tokens"),
    [
        ("qwen3-0.6b", 1.19, 112, 1.16e6),
        ("llama-3.2-1b", 2.47, 32, 4.0e6),
        ("llama-3.1-8b", 15.0, 128, 0.90e6),
        ("qwen3-14b", 28.0, 160, 0.64e6),
        ("qwen3-32b", 64.0, 256, 0.26e6),
    ],
)
def test_five_models_on_an_h200_read_and_hold_what_their_configurations_say(
    shape: str, weights: float, kib: int, tokens: float
) -> None:
    """By hand: matrices and output matrix in bf16, 2 · layers · KV heads · head size · 2 bytes, 95 % of 141 GB."""
    found = CATALOGUE[shape]
    assert found.read_bytes / 1e9 == pytest.approx(weights, rel=0.01)
    assert found.kv_bytes_per_token == kib * 1024
    assert kv_tokens(found, H200) == pytest.approx(tokens, rel=0.03)


@cases(
    ("shape", "milliseconds"),
    [(replace(LLAMA_3_1_8B, weight_dtype=Dtype.FP8), 1.74), (replace(LLAMA_3_1_8B, quantization=INT4), 1.11)],
)
def test_an_8b_reads_its_weights_in_8_bits_in_1_74_ms_and_in_4_bits_in_1_11(
    shape: ModelShape, milliseconds: float
) -> None:
    """At the 4.3 TB/s that a copy reaches on an H200; the output matrix of the second one stays in bf16."""
    parts = step_parts(shape, H200, StepWork(sequences=1))
    assert (parts.matrices + parts.output) * 1e3 == pytest.approx(milliseconds, rel=0.025)


def test_a_token_of_opt_13b_takes_800_kb_of_kv_cache() -> None:
    """Kwon et al. 2023, "Efficient Memory Management for LLM Serving with PagedAttention", section 3."""
    assert OPT_13B.kv_bytes_per_token == 2 * 5120 * 40 * 2 == 800 * 1024


def test_4k_tokens_of_a_70b_take_1_34_gb_and_without_grouped_queries_eight_times_as_much() -> None:
    """Llama 3 (arXiv 2407.21783), table 3: 80 layers, 8 KV heads of 128; 1.07 GB is what 64 layers take."""
    gqa, mha = LLAMA_3_3_70B, replace(LLAMA_3_3_70B, kv_heads=64)
    assert round(4096 * gqa.kv_bytes_per_token / 1e9, 2) == 1.34
    assert round(4096 * mha.kv_bytes_per_token / 1e9, 1) == 10.7
    assert round(4096 * QWEN3_32B.kv_bytes_per_token / 1e9, 2) == 1.07
    assert said("1.34 GB")
    assert said("1.07 GB")
    assert said("10.7 GB")


def test_a_token_of_llama_2_7b_takes_four_times_that_of_llama_3_8b() -> None:
    assert (LLAMA_2_7B.kv_bytes_per_token, LLAMA_3_1_8B.kv_bytes_per_token) == (512 * 1024, 128 * 1024)
    assert said("512 KiB")


def test_the_405b_has_126_layers() -> None:
    """Llama 3 (arXiv 2407.21783), table 3."""
    assert LLAMA_3_1_405B.layers == 126
    assert LLAMA_3_1_405B.kv_bytes_per_token == 504 * 1024
    assert round(replace(LLAMA_3_1_405B, layers=128).parameters / 1e9, 1) == 412.2
    assert said("504 KiB")
    assert said("412.2")


def test_mixtral_has_47_billion_parameters_and_a_batch_reads_nearly_all_of_them() -> None:
    """Jiang et al. 2024, "Mixtral of Experts" (arXiv 2401.04088): 47B, of which a token uses 13B."""
    assert round(MIXTRAL_8X7B.parameters / 1e9, 1) == 46.7
    assert round(MIXTRAL_8X7B.step_matrix_bytes(1) / 1e9, 1) == 25.2
    assert round(MIXTRAL_8X7B.step_matrix_bytes(16) / 1e9, 1) == 92.0
    assert said("46.7")
    assert said("25.2 GB")
    assert said("92.0 GB")


def test_four_bits_do_not_quarter_an_8b() -> None:
    quarter, real = LLAMA_3_1_8B.weight_bytes / 4e9, replace(LLAMA_3_1_8B, quantization=INT4).weight_bytes / 1e9
    assert (round(quarter, 1), round(real, 1)) == (4.0, 5.7)
    assert said("4.0 GB")
    assert said("5.7 GB")


def test_64_sequences_of_4k_take_three_times_as_long_as_the_weights_alone() -> None:
    alone = step_parts(LLAMA_3_1_8B, H200, StepWork(sequences=64))
    full = step_parts(LLAMA_3_1_8B, H200, StepWork(sequences=64, kv_tokens=64 * 4096))
    kernels = [(parts.matrices + parts.output + parts.decode_attention) * 1e3 for parts in (alone, full)]
    assert [round(milliseconds, 1) for milliseconds in kernels] == [3.5, 11.5]
    assert said("3.5 ms")
    assert said("11.5 ms")


def test_peaks_are_dense_and_links_count_one_direction() -> None:
    """NVIDIA's data sheets print 1,979 TFLOP/s (with sparsity) and 900 GB/s (both ways) for an H100."""
    assert (H100.flops[Dtype.BF16], H100.link) == (989e12, 450e9)
    assert (A100.flops[Dtype.BF16], A100.link) == (312e12, 300e9)
    assert RTX_4090.flops[Dtype.BF16] == 165.2e12
    assert said("989")
    assert said("450 GB/s")
    assert said("165.2")


def expected_tokens(acceptance: float, guesses: int) -> float:
    """By enumeration: guesses are taken until the first that is not accepted; one token more comes from the target."""
    total = 0.0
    for outcome in product((True, False), repeat=guesses):
        taken = next((place for place, accepted in enumerate(outcome) if not accepted), guesses)
        total += (taken + 1) * prod(acceptance if accepted else 1 - acceptance for accepted in outcome)
    return total


@pytest.mark.parametrize(("acceptance", "guesses"), [(0.5, 1), (0.8, 4), (0.9, 7)])
def test_speculation_yields_the_geometric_sum_and_not_each_guess_with_its_chance(
    acceptance: float, guesses: int
) -> None:
    """Leviathan et al. 2023, "Fast Inference from Transformers via Speculative Decoding", equation 1."""
    right = (1 - acceptance ** (guesses + 1)) / (1 - acceptance)
    assert expected_tokens(acceptance, guesses) == pytest.approx(right)
    assert guesses == 1 or right < 1 + guesses * acceptance


def test_four_guesses_at_80_percent_speed_up_2_8_times_with_a_draft_of_a_twentieth() -> None:
    """The same, theorem 3.8: tokens over (guesses · cost + 1)."""
    tokens = expected_tokens(0.8, 4)
    assert (round(tokens, 2), round(tokens / (4 * 0.05 + 1), 2), round(1 + 4 * 0.8, 1)) == (3.36, 2.8, 4.2)
    assert said("3.36")
    assert said("2.8")
    assert said("4.2")

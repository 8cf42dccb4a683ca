"""What a GPU holds: sizes that kernels take are refused by field, and pages get what the largest step leaves."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline_core.errors import InvalidInput
from paceline_core.objects.service_runtime import GPU_MAX_SEQS, GPU_PAGE_TOKENS
from paceline_kernels.paging import PAGE_TOKENS
from paceline_kernels.work_list.launch import MOST_SEQUENCES
from paceline_planner.hardware import Dtype
from paceline_planner.memory import USABLE
from paceline_planner.shapes import LLAMA_3_1_8B, ModelShape
from paceline_workers.config import EngineConfig
from paceline_workers.engine import sizing
from paceline_workers.engine.backends.gpu.memory_profile import (
    HEAD_DIMS,
    FreeMemory,
    check,
    check_room,
    largest_step,
    pages_of,
    room,
)
from paceline_workers.engine.devices import Gpu
from paceline_workers.engine.scheduling import SchedulerLimits

GIB = 1 << 30
H100 = Gpu("NVIDIA H100 80GB HBM3", (9, 0))
AMPERE = Gpu("NVIDIA A100-SXM4-80GB", (8, 0))
NARROW = ModelShape("narrow", 2, 90, 9, 3, 10, 96, 211, 512)


def refusal(engine: dict[str, Any], shape: ModelShape = LLAMA_3_1_8B, gpu: Gpu = H100) -> str:
    with pytest.raises(InvalidInput) as refused:
        check(EngineConfig(**engine), shape, gpu, 1 << 20)
    return str(refused.value)


def test_sizes_that_kernels_take_pass() -> None:
    for tokens in PAGE_TOKENS:
        check(EngineConfig(page_tokens=tokens, kv_dtype="fp8"), LLAMA_3_1_8B, H100, 1 << 20)
    check(EngineConfig(kv_dtype="int8", kv_bytes=2 << 20), LLAMA_3_1_8B, AMPERE, 1 << 20)


def test_sizes_that_no_kernel_takes_are_refused_by_field() -> None:
    assert refusal({"page_tokens": 8}).startswith("engine.page_tokens: 8 is no size of page on GPUs; use one of 16, 32")
    assert refusal({"page_tokens": 256}).startswith("engine.page_tokens: 256 ")
    many = refusal({"max_seqs": 1025, "step_tokens": 2048})
    assert many == "engine.max_seqs: 1025 is over the 1024 of GPUs; lower it"
    assert refusal({}, NARROW).startswith("model: its heads of 10 numbers are not computed on GPUs (16, 32, 64, 128")
    assert refusal({"kv_bytes": (2 << 20) - 1}) == (
        "engine.kv_bytes: 2097151 bytes do not hold two pages, 2097152; give more"
    )
    assert refusal({"kv_dtype": "fp8"}, gpu=AMPERE).startswith("engine.kv_dtype: NVIDIA A100-SXM4-80GB does not ")


def test_a_manifest_is_held_to_the_sizes_of_the_kernels_and_heads_are_powers_of_two() -> None:
    assert (GPU_PAGE_TOKENS, GPU_MAX_SEQS) == (PAGE_TOKENS, MOST_SEQUENCES)
    assert all(size & (size - 1) == 0 for size in HEAD_DIMS)


@pytest.mark.parametrize(
    ("dtype", "kv_dtype", "usual", "types"),
    [
        ("auto", "auto", Dtype.BF16, (Dtype.BF16, Dtype.BF16)),
        ("auto", "auto", Dtype.FP32, (Dtype.FP32, Dtype.FP32)),
        ("auto", "fp8", Dtype.BF16, (Dtype.BF16, Dtype.FP8)),
        ("fp32", "auto", Dtype.BF16, (Dtype.FP32, Dtype.FP32)),
        ("bf16", "int8", Dtype.FP32, (Dtype.BF16, Dtype.INT8)),
    ],
)
def test_types_are_those_asked_for_else_the_devices_usual_one(
    dtype: Any, kv_dtype: Any, usual: Dtype, types: tuple[Dtype, Dtype]
) -> None:
    shape = sizing.shaped(EngineConfig(dtype=dtype, kv_dtype=kv_dtype), LLAMA_3_1_8B, usual)
    assert (shape.weight_dtype, shape.kv_dtype) == types


def test_pages_get_what_weights_others_and_a_step_leave_of_the_share() -> None:
    """By hand: of 100 GiB 95 may be used, 30 are in use (by whom ever), and a step takes 5 more."""
    assert USABLE == 0.95
    assert room(FreeMemory(100 * GIB, 70 * GIB), 5 * GIB) == 60 * GIB
    assert room(FreeMemory(100 * GIB, 10 * GIB), 6 * GIB) == -1 * GIB


def test_a_device_that_holds_no_page_is_told_with_its_numbers_and_what_to_do() -> None:
    check_room(2 << 20, 1 << 20, FreeMemory(80 * GIB, 20 * GIB), H100)
    with pytest.raises(InvalidInput, match="leave 1 MiB for pages"):
        check_room((2 << 20) - 1, 1 << 20, FreeMemory(80 * GIB, 20 * GIB), H100)
    with pytest.raises(InvalidInput) as refused:
        check_room(-GIB, 1 << 20, FreeMemory(80 * GIB, 2 * GIB), H100)
    said = str(refused.value)
    assert said.startswith("model: its weights and a full step leave 0 MiB for pages on NVIDIA H100 80GB HBM3, which ")
    assert "2048 of 81920 MiB free; end what else uses it, lower step_tokens or max_seqs, or take a larger one" in said


@given(st.integers(1, 300), st.integers(16, 4096), st.integers(16, 9000), st.sampled_from(PAGE_TOKENS))
def test_the_largest_step_has_all_tokens_and_drawn_rows_that_one_can_have(
    seqs: int, tokens: int, longest: int, page: int
) -> None:
    limits = SchedulerLimits(longest, 100, page, seqs, tokens)
    plan = largest_step(limits)
    counts = [chunk.count for chunk in plan.chunks]
    assert sum(counts) == min(tokens, len(counts) * longest)
    assert len(counts) == min(seqs, tokens // 2)
    assert all(chunk.samples and chunk.start == 0 and len(chunk.request.tokens) == chunk.count for chunk in plan.chunks)
    assert min(counts) > 1
    assert all(len(chunk.request.pages) * page >= chunk.count for chunk in plan.chunks)
    assert {number for chunk in plan.chunks for number in chunk.request.pages} == set(range(pages_of(plan)))

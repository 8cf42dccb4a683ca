"""The roofline: worked examples by hand, then properties over the catalogue."""

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from paceline_core.errors import InvalidInput
from paceline_planner.accelerators import CPU, H100, H200, L4
from paceline_planner.hardware import Accelerator, Dtype
from paceline_planner.shapes import CATALOGUE, LLAMA_3_1_8B, LLAMA_3_3_70B, ModelShape
from paceline_planner.splits import DeviceSplit
from paceline_planner.steptime import StepWork, step_parts, step_seconds

WORK = st.builds(
    StepWork,
    prefill_tokens=st.integers(0, 8192),
    context=st.floats(0, 100_000),
    sequences=st.integers(0, 512),
    kv_tokens=st.integers(0, 1_000_000),
)
SHAPES = st.sampled_from(list(CATALOGUE.values()))
ACCELERATORS = st.sampled_from([H100, H200, L4, CPU])


def test_one_8b_token_on_an_h200_reads_15_gb_in_3_49_ms() -> None:
    parts = step_parts(LLAMA_3_1_8B, H200, StepWork(sequences=1))
    assert parts.matrices + parts.output == pytest.approx(15.009e9 / 4.3e12, rel=1e-3)
    assert round((parts.matrices + parts.output) * 1e3, 2) == 3.49


def test_64_sequences_of_4k_read_weights_and_cache_in_11_5_ms() -> None:
    parts = step_parts(LLAMA_3_1_8B, H200, StepWork(sequences=64, kv_tokens=64 * 4096))
    assert parts.decode_attention == pytest.approx(64 * 4096 * 131072 / 4.3e12, rel=1e-3)
    assert parts.seconds - parts.overhead == pytest.approx(11.5e-3, rel=0.01)


def test_8b_prefill_on_an_h200_is_bound_at_52_7_thousand_tokens_a_second() -> None:
    # The bound counts the output matrix for every token; a step computes it for sampled positions alone.
    ceiling = replace(H200, efficiency=replace(H200.efficiency, compute=0.80))
    parameters = LLAMA_3_1_8B.read_bytes / 2
    assert ceiling.compute_rate(Dtype.BF16) / (2 * parameters) == pytest.approx(52.7e3, rel=1e-3)
    parts = step_parts(LLAMA_3_1_8B, ceiling, StepWork(prefill_tokens=8192))
    assert 8192 / parts.matrices == pytest.approx(52.7e3 * parameters / (32 * 218_103_808), rel=1e-3)


def test_attention_of_a_first_8k_chunk_costs_a_sixth_of_its_matrices() -> None:
    parts = step_parts(LLAMA_3_1_8B, H100, StepWork(prefill_tokens=8192, context=4096))
    assert parts.prefill_attention == pytest.approx(4 * 32 * 32 * 128 * 8192 * 4096 / (989e12 * 0.5))
    assert parts.prefill_attention / parts.matrices == pytest.approx(0.17, abs=0.01)


def test_a_few_tokens_far_into_a_prompt_are_bound_by_reading_its_cache() -> None:
    parts = step_parts(LLAMA_3_1_8B, H100, StepWork(prefill_tokens=4, context=30_000))
    assert parts.prefill_attention == pytest.approx(30_000 * 131072 / (3.35e12 * 0.896))


def test_two_devices_halve_the_reading_and_pay_for_160_all_reduces() -> None:
    one = step_parts(LLAMA_3_3_70B, H200, StepWork(sequences=8, kv_tokens=8000))
    two = step_parts(LLAMA_3_3_70B, H200, StepWork(sequences=8, kv_tokens=8000), split=DeviceSplit(2))
    assert two.matrices == one.matrices / 2
    assert two.decode_attention == one.decode_attention / 2
    assert one.link == 0
    assert two.link == pytest.approx(160 * (8e-6 + 8 * 8192 * 2 / (450e9 * 0.8)))


def test_the_cpu_reproduces_what_was_measured_with_a_125m_llama() -> None:
    llama = ModelShape(
        "125m", layers=12, hidden=768, heads=12, kv_heads=4, head_dim=64, ffn=2048, vocab=32000, max_context=2048,
        weight_dtype=Dtype.FP32, kv_dtype=Dtype.FP32,
    )  # fmt: skip
    assert round(llama.parameters / 1e6, 1) == 124.7
    assert 1 / step_seconds(llama, CPU, StepWork(sequences=1, kv_tokens=160)) == pytest.approx(41.5, rel=0.15)
    assert 8 / step_seconds(llama, CPU, StepWork(sequences=8, kv_tokens=8 * 160)) == pytest.approx(222, rel=0.15)
    assert 512 / step_seconds(llama, CPU, StepWork(512, context=256)) == pytest.approx(1035, rel=0.15)
    half = replace(llama, weight_dtype=Dtype.BF16, kv_dtype=Dtype.BF16)
    assert 512 / step_seconds(half, CPU, StepWork(512, context=256)) == pytest.approx(302, rel=0.3)


def test_a_step_without_tokens_takes_no_time() -> None:
    assert step_seconds(LLAMA_3_1_8B, H100, StepWork()) == 0


@pytest.mark.parametrize(
    ("accelerator", "tensor", "why"), [(H100, 3, "KV heads"), (H100, 0, "KV heads"), (CPU, 2, "no link")]
)
def test_a_split_that_cannot_be_is_refused(accelerator: Accelerator, tensor: int, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        step_seconds(LLAMA_3_1_8B, accelerator, StepWork(sequences=1), DeviceSplit(tensor))


def test_a_type_that_a_device_cannot_compute_in_is_refused_with_those_it_can() -> None:
    with pytest.raises(InvalidInput, match="cpu does not compute in fp8; it knows bf16, fp32"):
        step_seconds(replace(LLAMA_3_1_8B, weight_dtype=Dtype.FP8), CPU, StepWork(sequences=1))


def test_eight_bit_weights_and_cache_make_a_step_faster() -> None:
    work = StepWork(prefill_tokens=512, context=256, sequences=32, kv_tokens=100_000)
    small = replace(LLAMA_3_1_8B, weight_dtype=Dtype.FP8, kv_dtype=Dtype.FP8)
    assert step_seconds(small, H100, work) < step_seconds(LLAMA_3_1_8B, H100, work)


@given(shape=SHAPES, accelerator=ACCELERATORS, work=WORK, more=WORK)
def test_more_work_never_takes_less_time(
    shape: ModelShape, accelerator: Accelerator, work: StepWork, more: StepWork
) -> None:
    larger = StepWork(
        work.prefill_tokens + more.prefill_tokens,
        work.context + more.context,
        work.sequences + more.sequences,
        work.kv_tokens + more.kv_tokens,
    )
    assert step_seconds(shape, accelerator, larger) >= step_seconds(shape, accelerator, work) >= 0


@given(shape=SHAPES, accelerator=ACCELERATORS, work=WORK)
def test_a_mixed_step_takes_at_least_each_part_and_at_most_both_steps(
    shape: ModelShape, accelerator: Accelerator, work: StepWork
) -> None:
    prefill = step_seconds(shape, accelerator, replace(work, sequences=0, kv_tokens=0))
    decode = step_seconds(shape, accelerator, replace(work, prefill_tokens=0, context=0.0, kv_tokens=work.kv_tokens))
    mixed = step_seconds(shape, accelerator, work)
    assert mixed >= max(prefill, decode if work.sequences else 0)
    if work.prefill_tokens and work.sequences:
        assert mixed <= (prefill + decode) * (1 + 1e-9)


@given(shape=SHAPES, work=WORK, factor=st.floats(1, 10))
def test_a_faster_device_is_never_slower(shape: ModelShape, work: StepWork, factor: float) -> None:
    wide = replace(H100, bandwidth=H100.bandwidth * factor)
    strong = replace(H100, flops={dtype: peak * factor for dtype, peak in H100.flops.items()})
    assert step_seconds(shape, wide, work) <= step_seconds(shape, H100, work)
    assert step_seconds(shape, strong, work) <= step_seconds(shape, H100, work)


@given(shape=SHAPES, work=WORK, tensor=st.sampled_from([2, 4, 8]))
def test_splitting_divides_the_kernels_and_adds_the_link(shape: ModelShape, work: StepWork, tensor: int) -> None:
    assume(shape.kv_heads % tensor == 0)
    alone, split = step_parts(shape, H100, work), step_parts(shape, H100, work, DeviceSplit(tensor))
    assert split.seconds - split.link - split.overhead == pytest.approx(
        (alone.seconds - alone.overhead) / tensor, abs=1e-12
    )
    assert split.overhead == alone.overhead

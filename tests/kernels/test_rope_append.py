from dataclasses import dataclass, replace

import pytest
import torch
from tests.kernels.closeness import assert_as_exact
from tests.kernels.conftest import CUDA
from torch import Tensor

from paceline_kernels.paging import Pages
from paceline_kernels.quantize import LIMITS, dequantize, quantize
from paceline_kernels.rope_append import launch, reference

EPS = 1e-6
POOL = 5
CPU = torch.device("cpu")
NARROW = [torch.int8, torch.float8_e4m3fn] if CUDA else [torch.int8]
"""What pages of eight bits hold; the interpreter computes fp8 wrongly."""


@dataclass(frozen=True, slots=True)
class Step:
    """Arguments of one call."""

    qkv: Tensor
    cos: Tensor
    sin: Tensor
    slots: Tensor
    query_norm: Tensor | None
    key_norm: Tensor | None

    @classmethod
    def random(
        cls, heads: int, kv_heads: int, dim: int, slots: list[int], dtype: torch.dtype, device: torch.device
    ) -> "Step":
        tokens = len(slots)
        angles = torch.rand(tokens, dim // 2, device=device) * 6.3
        return cls(
            torch.randn(tokens, (heads + 2 * kv_heads) * dim, device=device).to(dtype),
            angles.cos(),
            angles.sin(),
            torch.tensor(slots, dtype=torch.int64, device=device),
            torch.randn(dim, device=device),
            torch.randn(dim, device=device),
        )

    def kernel(self, pages: Pages, numbers: launch.Launch | None = None) -> Tensor:
        where = (self.qkv, self.cos, self.sin, self.slots, pages)
        return launch.rope_append(*where, query_norm=self.query_norm, key_norm=self.key_norm, eps=EPS, launch=numbers)

    def reference(self, pages: Pages) -> Tensor:
        where = (self.qkv, self.cos, self.sin, self.slots, pages)
        return reference.rope_append(*where, query_norm=self.query_norm, key_norm=self.key_norm, eps=EPS)

    def cast(self, kind: torch.dtype) -> "Step":
        norms = (None if weight is None else weight.to(kind) for weight in (self.query_norm, self.key_norm))
        return Step(self.qkv.to(kind), self.cos.to(kind), self.sin.to(kind), self.slots, *norms)


def pages(kv_heads: int, page_tokens: int, dim: int, dtype: torch.dtype, device: torch.device) -> Pages:
    """Old content everywhere; pages of eight bits have scales."""
    shape = (POOL, kv_heads, 2, page_tokens, dim)
    if dtype not in LIMITS:
        return Pages(torch.randn(shape, device=device).to(dtype))
    return Pages(torch.full(shape, 3, device=device).to(dtype), torch.full(shape[:4], 0.25, device=device))


def copied(pool: Pages) -> Pages:
    return Pages(pool.data.clone(), None if pool.scales is None else pool.scales.clone())


def written(whole: Tensor, slots: Tensor) -> Tensor:
    """[tokens, kv heads, 2, ...]: what lies at these slots of pages or of their scales."""
    told = slots[slots >= 0]
    return whole[told // whole.shape[3], :, :, told % whole.shape[3]]


def assert_only_written(now: Tensor, before: Tensor, slots: Tensor) -> None:
    """Everything but these slots is what it was, bit by bit."""
    told = slots[slots >= 0]
    restored = now.clone()
    restored[told // now.shape[3], :, :, told % now.shape[3]] = written(before, slots)
    assert torch.equal(restored.view(torch.uint8), before.view(torch.uint8))


def test_a_quarter_turn_swaps_the_halves_of_queries_and_keys_and_leaves_values(device: torch.device) -> None:
    pool = Pages(torch.zeros(2, 1, 2, 16, 4, device=device))
    qkv = torch.tensor([[1.0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]], device=device)
    cos, sin = torch.zeros(1, 2, device=device), torch.ones(1, 2, device=device)
    out = launch.rope_append(qkv, cos, sin, torch.tensor([16 + 3], device=device), pool)
    assert out.tolist() == [[[-3, -4, 1, 2]]]
    assert pool.data[1, 0, :, 3].tolist() == [[-7, -8, 5, 6], [9, 10, 11, 12]]
    assert pool.data.count_nonzero() == 8


def test_the_greatest_number_of_a_head_becomes_the_limit(device: torch.device) -> None:
    pool = pages(1, 16, 4, torch.int8, device)
    qkv = torch.tensor([[0.0, 0, 0, 0, 254, -126, 4, 0, 0, 0, 0, 0]], device=device)
    still = (torch.ones(1, 2, device=device), torch.zeros(1, 2, device=device))
    launch.rope_append(qkv, *still, torch.tensor([5], device=device), pool)
    assert pool.scales is not None
    assert pool.data[0, 0, 0, 5].tolist() == [127, -63, 2, 0]
    assert pool.scales[0, 0, 0, 5].item() == pytest.approx(2)
    assert pool.data[0, 0, 1, 5].tolist() == [0, 0, 0, 0]
    assert 0 < pool.scales[0, 0, 1, 5] < 1e-30


@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (14, 2), (5, 1), (20, 3), (33, 17)])
@pytest.mark.parametrize("normed", [True, False], ids=["normed", "plain"])
def test_queries_keys_and_values_are_as_exact_as_their_type_allows(
    heads: int, kv_heads: int, *, normed: bool, dtype: torch.dtype, device: torch.device
) -> None:
    step = Step.random(heads, kv_heads, 16, [3, 79, 16], dtype, device)
    step = step if normed else replace(step, query_norm=None, key_norm=None)
    pool = pages(kv_heads, 16, 16, dtype, device)
    before = copied(pool)
    out = step.kernel(pool)

    def cache(kind: torch.dtype) -> Tensor:
        other = Pages(before.data.to(kind))
        step.cast(kind).reference(other)
        return written(other.data, step.slots)

    assert out.dtype == dtype
    assert_as_exact(out, lambda kind: step.cast(kind).reference(Pages(before.data.to(kind))))
    assert_as_exact(written(pool.data, step.slots), cache)
    assert_only_written(pool.data, before.data, step.slots)


@pytest.mark.parametrize(("page_tokens", "dim"), [(16, 128), (32, 8), (64, 64), (128, 4), (64, 256)])
def test_the_first_and_last_places_of_pages_of_every_size_are_found(
    page_tokens: int, dim: int, dtype: torch.dtype, device: torch.device
) -> None:
    slots = [0, page_tokens - 1, page_tokens, POOL * page_tokens - 1]
    step, pool = Step.random(3, 2, dim, slots, dtype, device), pages(2, page_tokens, dim, dtype, device)
    before = copied(pool)
    step.kernel(pool)
    expected = copied(before)
    step.reference(expected)
    close = 1e-5 if dtype == torch.float32 else 2e-2
    assert torch.allclose(pool.data, expected.data, rtol=close, atol=close)
    assert_only_written(pool.data, before.data, step.slots)


@pytest.mark.parametrize("kind", [torch.float32, *NARROW], ids=str)
def test_a_slot_of_minus_one_writes_nothing_and_still_has_its_query(kind: torch.dtype, device: torch.device) -> None:
    step, pool = Step.random(3, 2, 16, [-1, 20, -1], torch.float32, device), pages(2, 16, 16, kind, device)
    before = copied(pool)
    assert torch.allclose(step.kernel(pool), step.reference(copied(before)), atol=1e-5)
    assert_only_written(pool.data, before.data, step.slots)
    assert not torch.equal(pool.data.view(torch.uint8), before.data.view(torch.uint8))
    if pool.scales is not None and before.scales is not None:
        assert_only_written(pool.scales, before.scales, step.slots)


@pytest.mark.parametrize("kind", NARROW, ids=str)
@pytest.mark.parametrize(("heads", "kv_heads", "dim"), [(4, 4, 16), (20, 3, 64), (3, 1, 128)])
def test_pages_of_eight_bits_are_off_by_half_a_step(
    heads: int, kv_heads: int, dim: int, kind: torch.dtype, dtype: torch.dtype, device: torch.device
) -> None:
    step, pool = Step.random(heads, kv_heads, dim, [40, 1], dtype, device), pages(kv_heads, 16, dim, kind, device)
    step.kernel(pool)
    exact = pages(kv_heads, 16, dim, torch.float32, device)
    step.reference(exact)
    assert pool.scales is not None
    wide, scales = written(exact.data, step.slots), written(pool.scales, step.slots)
    assert torch.allclose(scales, wide.abs().amax(-1) / LIMITS[kind], rtol=1e-5, atol=0.0)
    least = scales[..., None] * (0.5001 if kind == torch.int8 else 2**-10)
    allowed = least if kind == torch.int8 else torch.maximum(wide.abs() * 2**-4 * 1.0001, least)
    assert ((dequantize(written(pool.data, step.slots), scales) - wide).abs() <= allowed).all()


@pytest.mark.parametrize("kind", NARROW, ids=str)
def test_vectors_of_zeros_and_of_next_to_nothing_stay_finite(kind: torch.dtype, device: torch.device) -> None:
    step, pool = Step.random(1, 1, 16, [7, 8], torch.float32, device), pages(1, 16, 16, kind, device)
    step.qkv[0], step.qkv[1] = 0.0, 1e-42
    step.kernel(pool)
    assert pool.scales is not None
    assert dequantize(written(pool.data, step.slots), written(pool.scales, step.slots)).abs().max() < 1e-29


def test_slots_beyond_two_thousand_million_numbers_are_found(device: torch.device) -> None:
    """The pool is never touched but where it is written, so it takes addresses, not memory, on a CPU."""
    count, page_tokens, dim = 2**16 + 4, 128, 128
    data = torch.empty(count, 1, 2, page_tokens, dim, dtype=torch.int8, device=device)
    pool = Pages(data, torch.empty(count, 1, 2, page_tokens, device=device))
    assert pool.scales is not None
    last = count - 2
    data[last], pool.scales[last] = 9, 9.0
    step = Step.random(2, 1, dim, [last * page_tokens + 77], torch.float32, device)
    step.kernel(pool)
    expected = Pages(data[last:].clone(), new := pool.scales[last:].clone())
    replace(step, slots=step.slots - last * page_tokens).reference(expected)
    numbers = data[last:, :, :, 77].int() - expected.data[:, :, :, 77].int()
    assert numbers[0].abs().max() <= 1
    assert torch.allclose(pool.scales[last, 0, :, 77], new[0, 0, :, 77], atol=1e-5)
    others = torch.arange(page_tokens, device=device) != 77
    assert data[last][:, :, others].eq(9).all()
    assert pool.scales[last][:, :, others].eq(9).all()


@pytest.mark.parametrize("numbers", [launch.Launch(1, 1), launch.Launch(4, 2), launch.Launch(64, 8)], ids=str)
def test_every_division_of_the_heads_gives_the_same(numbers: launch.Launch, device: torch.device) -> None:
    step, pool = Step.random(6, 3, 16, [3, -1], torch.float32, device), pages(3, 16, 16, torch.float32, device)
    expected = copied(pool)
    assert torch.allclose(step.kernel(pool, numbers), step.reference(expected), atol=1e-5)
    assert torch.allclose(pool.data, expected.data, atol=1e-5)


def test_no_tokens_are_no_work(device: torch.device) -> None:
    step, pool = Step.random(2, 1, 16, [], torch.float32, device), pages(1, 16, 16, torch.float32, device)
    assert step.kernel(pool).shape == (0, 2, 16)


@pytest.mark.parametrize("kind", list(LIMITS), ids=str)
def test_narrowing_keeps_zeros_and_the_greatest_number(kind: torch.dtype) -> None:
    x = torch.tensor([[0.0, -3.0, 1.5], [0.0, 0.0, 0.0]])
    numbers, scales = quantize(x, kind)
    assert numbers[0, 1].float() == -LIMITS[kind]
    assert dequantize(numbers, scales)[0].tolist() == pytest.approx([0.0, -3.0, 1.5], rel=2**-4)
    assert dequantize(numbers, scales)[1].tolist() == [0.0, 0.0, 0.0]


def test_what_does_not_fit_is_named() -> None:
    step, pool = Step.random(2, 1, 16, [0, 1], torch.float32, CPU), pages(1, 16, 16, torch.float32, CPU)
    eights = pages(1, 16, 16, torch.int8, CPU)
    wrong: list[tuple[str, Step, Pages]] = [
        ("qkv", replace(step, qkv=step.qkv[:, :-1].contiguous()), pool),
        ("qkv", replace(step, qkv=step.qkv[:, :32].contiguous()), pool),
        ("qkv", replace(step, qkv=step.qkv.T.contiguous().T), pool),
        ("cos", replace(step, cos=step.cos[:1]), pool),
        ("sin", replace(step, sin=step.sin[:, :4].contiguous()), pool),
        ("slots", replace(step, slots=step.slots.int()), pool),
        ("slots", replace(step, slots=step.slots[:1]), pool),
        ("query_norm and key_norm", replace(step, query_norm=None), pool),
        ("key_norm", replace(step, key_norm=torch.ones(8)), pool),
        ("pages.data", step, Pages(pool.data[..., :12].contiguous())),
        ("pages.data", step, Pages(pool.data[:, :, :, :8].contiguous())),
        ("pages.scales", step, Pages(eights.data)),
        ("pages.scales", step, Pages(pool.data, eights.scales)),
    ]
    for name, given, target in wrong:
        with pytest.raises(ValueError, match=f"^{name} "):
            given.kernel(target)

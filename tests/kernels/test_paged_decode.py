"""Attention of few queries to pages: by hand, then against the reference on whatever is odd."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import pytest
import torch
from tests.kernels import pools
from tests.kernels.closeness import assert_as_exact
from tests.kernels.conftest import CUDA

from paceline_kernels.paged_decode.launch import launch_for, paged_decode
from paceline_kernels.paged_decode.reference import paged_attention
from paceline_kernels.paging import AttentionMask, Pages, Sequences
from paceline_kernels.work_list.launch import Work, plan_work

Compute = Callable[..., tuple[torch.Tensor, torch.Tensor]]


def ints(*values: int, device: torch.device) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32, device=device)


def three_tokens(device: torch.device) -> tuple[Pages, Sequences]:
    """One head of 16 numbers; keys point along axes 0, 1, 2, values are 1, 2, 4 everywhere; page 1 of two."""
    data = torch.full((2, 1, 2, 16, 16), 100.0, device=device)
    data[1, 0, 0, :3] = torch.eye(3, 16, device=device)
    data[1, 0, 1, :3] = torch.tensor([1.0, 2.0, 4.0], device=device)[:, None]
    return Pages(data), Sequences(ints(1, device=device)[None], ints(3, device=device), ints(0, device=device))


def run(
    query: torch.Tensor,
    pages: Pages,
    sequences: Sequences,
    rule: AttentionMask,
    sinks: torch.Tensor | None = None,
    programs: int = 3,
) -> tuple[torch.Tensor, torch.Tensor]:
    heads = query.shape[2] // pages.kv_heads
    work = Work.empty(
        len(sequences), pages.kv_heads, heads * query.shape[1], pages.head_dim, programs, query.device, least=1
    )
    plan_work(sequences, pages.page_tokens, rule, work, query.shape[1])
    out, lse = torch.full_like(query, math.nan), torch.full_like(query[..., 0], math.nan, dtype=torch.float32)
    paged_decode(query, pages, sequences, rule, work, sink_logits=sinks, out=out, lse=lse)
    return out, lse


@pytest.mark.parametrize("compute", [run, paged_attention], ids=["kernel", "reference"])
class TestByHand:
    def test_a_query_averages_values_by_the_exponential_of_its_scores(
        self, compute: Compute, device: torch.device
    ) -> None:
        query = torch.zeros(1, 1, 1, 16, device=device)
        query[..., 0] = math.log(2)
        out, lse = compute(query, *three_tokens(device), AttentionMask(scale=1.0))
        assert out[0, 0, 0].tolist() == pytest.approx([(2 * 1 + 2 + 4) / 4] * 16)
        assert lse.item() == pytest.approx(math.log(4))

    def test_of_two_queries_the_first_does_not_see_the_last_token(self, compute: Compute, device: torch.device) -> None:
        out, lse = compute(torch.zeros(1, 2, 1, 16, device=device), *three_tokens(device), AttentionMask(scale=1.0))
        assert out[0, :, 0, 0].tolist() == pytest.approx([1.5, 7 / 3])
        assert lse[0, :, 0].tolist() == pytest.approx([math.log(2), math.log(3)])

    def test_a_window_counts_the_token_that_looks(self, compute: Compute, device: torch.device) -> None:
        out, _ = compute(
            torch.zeros(1, 1, 1, 16, device=device), *three_tokens(device), AttentionMask(scale=1.0, window=2)
        )
        assert out[0, 0, 0, 0].item() == pytest.approx(3)

    def test_first_tokens_stay_in_sight_behind_a_window(self, compute: Compute, device: torch.device) -> None:
        rule = AttentionMask(scale=1.0, window=1, first=1)
        out, _ = compute(torch.zeros(1, 1, 1, 16, device=device), *three_tokens(device), rule)
        assert out[0, 0, 0, 0].item() == pytest.approx(2.5)

    def test_a_sink_takes_its_share_and_gives_nothing(self, compute: Compute, device: torch.device) -> None:
        sinks = torch.zeros(1, device=device)
        query = torch.zeros(1, 1, 1, 16, device=device)
        out, lse = compute(query, *three_tokens(device), AttentionMask(scale=1.0), sinks)
        assert out[0, 0, 0, 0].item() == pytest.approx(7 / 4)
        assert lse.item() == pytest.approx(math.log(4))

    def test_a_cap_bends_large_scores(self, compute: Compute, device: torch.device) -> None:
        query = torch.zeros(1, 1, 1, 16, device=device)
        query[..., 0] = 1e6
        out, lse = compute(query, *three_tokens(device), AttentionMask(scale=1.0, cap=math.log(2)))
        assert out[0, 0, 0, 0].item() == pytest.approx((2 * 1 + 2 + 4) / 4)
        assert lse.item() == pytest.approx(math.log(4))

    def test_a_query_before_the_first_token_sees_nothing(self, compute: Compute, device: torch.device) -> None:
        pages, sequences = three_tokens(device)
        query = torch.zeros(1, 4, 1, 16, device=device)
        out, lse = compute(query, pages, sequences, AttentionMask(scale=1.0), torch.zeros(1, device=device))
        assert out[0, :, 0, 0].tolist() == pytest.approx([0, 1 / 2, 1, 7 / 4])
        assert lse[0, 0].item() == -math.inf

    def test_scales_multiply_what_narrow_pages_hold(self, compute: Compute, device: torch.device) -> None:
        pages, sequences = three_tokens(device)
        scales = torch.ones(pages.data.shape[:-1], device=device)
        scales[1, 0, 0, 0], scales[1, 0, 1, 2] = math.log(2), 0.5
        narrow = Pages(pages.data.to(torch.int8), scales)
        out, _ = compute(torch.eye(1, 16, device=device).view(1, 1, 1, 16), narrow, sequences, AttentionMask(scale=1.0))
        assert out[0, 0, 0, 0].item() == pytest.approx((2 * 1 + 2 + 4 * 0.5) / 4)


@dataclass(frozen=True)
class Shape:
    heads: int
    kv_heads: int
    page_tokens: int
    head_dim: int
    queries: int = 1


SHAPES = [
    Shape(2, 2, 16, 64),
    Shape(8, 2, 64, 128),
    Shape(4, 1, 32, 16),
    Shape(6, 2, 128, 32),
    Shape(2, 2, 16, 16, queries=3),
    Shape(8, 2, 16, 64, queries=8),
    # 64 and 128 rows are products of other instructions on a GPU, and nothing special without one
    *([Shape(8, 1, 32, 64, queries=8), Shape(16, 1, 32, 128, queries=8)] if CUDA else []),
]


def batch_of(
    shape: Shape, lengths: list[int], dtype: torch.dtype, device: torch.device, narrow: torch.dtype | None = None
) -> tuple[torch.Tensor, Pages, Sequences]:
    """Contexts in a pool whose other places hold NaN, and queries twice as long as usual, for uneven weights."""
    count = sum(-(-length // shape.page_tokens) for length in lengths) + 3
    batch = pools.sequences(lengths, shape.page_tokens, count, device)
    pages = pools.pages(count, shape.kv_heads, shape.page_tokens, shape.head_dim, dtype=torch.float32, device=device)
    held = torch.zeros(count, shape.page_tokens, dtype=torch.bool)
    for row, length in enumerate(lengths):
        for place in range(length):
            held[int(batch.table[row, place // shape.page_tokens]), place % shape.page_tokens] = True
    free = ~held[:, None, None].to(device).expand(pages.data.shape[:-1])
    query = 2 * torch.randn(len(lengths), shape.queries, shape.heads, shape.head_dim, device=device).to(dtype)
    if narrow is None:
        data = pages.data.masked_fill(free[..., None], math.nan)
        return query, Pages(data.to(dtype)), batch
    scales = torch.rand(pages.data.shape[:-1], device=device) / 64 + 0.01
    return query, Pages((pages.data * 40).to(narrow), scales.masked_fill(free, math.nan)), batch


def agrees(
    query: torch.Tensor,
    pages: Pages,
    batch: Sequences,
    rule: AttentionMask,
    sinks: torch.Tensor | None = None,
    programs: int = 5,
) -> None:
    """The kernel's numbers are those of the reference, and the pool is as it was."""
    before = pages.data.view(torch.uint8).clone()
    out, lse = run(query, pages, batch, rule, sinks, programs=programs)

    def reference(dtype: torch.dtype, part: int) -> torch.Tensor:
        data = pages.data if pages.scales is not None else pages.data.to(dtype)
        return paged_attention(query.to(dtype), Pages(data, pages.scales), batch, rule, sinks)[part]

    assert_as_exact(out, lambda dtype: reference(dtype, 0))
    exact = reference(torch.float32, 1)
    empty = exact == -math.inf
    assert torch.equal(lse == -math.inf, empty)
    assert_as_exact(lse.masked_fill(empty, 0), lambda _: exact.masked_fill(empty, 0))
    assert torch.equal(pages.data.view(torch.uint8), before)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_odd_lengths_agree_with_the_reference(shape: Shape, dtype: torch.dtype, device: torch.device) -> None:
    page = shape.page_tokens
    query, pages, batch = batch_of(shape, [0, 1, page - 1, page, page + 1, 0, 3 * page + 5], dtype, device)
    agrees(query, pages, batch, AttentionMask(scale=shape.head_dim**-0.5))


RULES = [
    AttentionMask(scale=0.2, window=1),
    AttentionMask(scale=0.2, window=16),
    AttentionMask(scale=0.2, window=21, first=4),
    AttentionMask(scale=0.2, window=40, first=17),
    AttentionMask(scale=0.2, window=500, first=3),
    AttentionMask(scale=0.2, cap=2.0),
    AttentionMask(scale=0.2, window=30, first=1, cap=5.0),
]


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("queries", [1, 4])
def test_rules_agree_with_the_reference(
    rule: AttentionMask, queries: int, dtype: torch.dtype, device: torch.device
) -> None:
    query, pages, batch = batch_of(Shape(4, 2, 16, 16, queries), [70, 3, 16, 0, 49], dtype, device)
    agrees(query, pages, batch, rule)


@pytest.mark.parametrize("programs", [1, 2, 3, 7, 40])
@pytest.mark.parametrize("length", [16, 100])
def test_sinks_count_once_however_the_work_is_split(
    programs: int, length: int, dtype: torch.dtype, device: torch.device
) -> None:
    query, pages, batch = batch_of(Shape(4, 2, 16, 16), [length, 1, 0], dtype, device)
    agrees(query, pages, batch, AttentionMask(scale=0.2), torch.randn(4, device=device), programs)


NARROW = [torch.int8, torch.float8_e4m3fn] if CUDA else [torch.int8]


@pytest.mark.parametrize("narrow", NARROW, ids=str)
@pytest.mark.parametrize("shape", [SHAPES[0], SHAPES[3], SHAPES[4]], ids=str)
def test_narrow_pages_agree_with_what_they_stand_for(
    narrow: torch.dtype, shape: Shape, dtype: torch.dtype, device: torch.device
) -> None:
    query, pages, batch = batch_of(shape, [33, 0, 16, 1], dtype, device, narrow)
    agrees(query, pages, batch, AttentionMask(scale=0.1))


TYPES = list(product([torch.float32, torch.bfloat16, torch.float16], NARROW))
"""Of queries and pages. The interpreter is right in float32, and in float16, in which fp8 is multiplied."""
INTERPRETED = [(torch.float32, torch.int8), (torch.float16, torch.float8_e4m3fn)]


@pytest.mark.parametrize(("dtype", "narrow"), TYPES if CUDA else INTERPRETED, ids=str)
@pytest.mark.parametrize(("large", "wide"), [(1e5, 1.0), (1e-5, 1e-2), (1.0, 1e3)])
def test_narrow_pages_take_queries_and_values_of_any_size(
    dtype: torch.dtype, narrow: torch.dtype, large: float, wide: float, device: torch.device
) -> None:
    query, pages, batch = batch_of(SHAPES[4], [33, 0, 16, 1], dtype, device, narrow)
    assert pages.scales is not None
    if dtype == torch.float16:  # what plain PyTorch computes with must be in its range, too
        large = min(max(large, 1e-3), torch.finfo(dtype).max / 8)
    sizes = torch.exp2(torch.randint(-12, 1, pages.scales[:, :, 1].shape, device=device).float())  # of a token's values
    pages.scales[:, :, 0] /= large
    pages.scales[:, :, 1] *= wide * sizes
    agrees(query * large, pages, batch, AttentionMask(scale=0.1), torch.randn(2, device=device))


def test_pages_out_of_sight_need_not_be_in_the_table(dtype: torch.dtype, device: torch.device) -> None:
    rule = AttentionMask(scale=0.2, window=20, first=4)
    query, pages, batch = batch_of(Shape(4, 2, 16, 16, 2), [100, 90, 5], dtype, device)
    whole = run(query, pages, batch, rule)
    gone = ints(3, 2, 0, device=device)  # behind the head of one page
    table = torch.full_like(batch.table, -1)
    for row, missing in enumerate(gone.tolist()):
        table[row, 0] = batch.table[row, 0]
        table[row, 1 : table.shape[1] - missing] = batch.table[row, 1 + missing :]
    compact = run(query, pages, Sequences(table, batch.lengths, gone), rule)
    assert all(torch.equal(one, other) for one, other in zip(whole, compact, strict=True))
    agrees(query, pages, Sequences(table, batch.lengths, gone), rule)


def test_offsets_beyond_two_to_the_31_are_reached(device: torch.device) -> None:
    data = torch.empty((2**31 // (2 * 16 * 64) + 3, 1, 2, 16, 64), device=device)  # most of it is never touched
    last = len(data) - 1
    data[last], data[last - 1] = torch.randn(2, 1, 2, 16, 64, device=device)
    near = Pages(data[last - 1 :].clone())
    lengths, none = ints(20, device=device), ints(0, device=device)
    query = torch.randn(1, 1, 2, 64, device=device)
    far = Sequences(ints(last, last - 1, device=device)[None], lengths, none)
    here = Sequences(ints(1, 0, device=device)[None], lengths, none)
    assert torch.equal(
        run(query, Pages(data), far, AttentionMask(scale=0.1))[0], run(query, near, here, AttentionMask(scale=0.1))[0]
    )


def test_one_work_serves_batches_that_grow_and_shrink(dtype: torch.dtype, device: torch.device) -> None:
    shape = Shape(4, 2, 16, 16)
    work = Work.empty(6, 2, 2, 16, 4, device, least=1)
    for lengths in ([50, 60, 1], [0, 5], [0, 0], [1, 0, 17, 90, 3, 0]):
        query, pages, batch = batch_of(shape, lengths, dtype, device)
        plan_work(batch, 16, AttentionMask(scale=0.2), work)
        out = paged_decode(query, pages, batch, AttentionMask(scale=0.2), work, out=torch.full_like(query, math.nan))
        alone, _ = run(query, pages, batch, AttentionMask(scale=0.2), programs=4)
        assert torch.equal(out, alone)


def test_smaller_tiles_than_pages_agree(dtype: torch.dtype, device: torch.device) -> None:
    query, pages, batch = batch_of(Shape(4, 2, 64, 16, 2), [70, 64, 0, 33], dtype, device)
    work = Work.empty(4, 2, 4, 16, 3, device, tile=32, least=1)
    rule = AttentionMask(scale=0.2, window=40, first=5)
    plan_work(batch, 64, rule, work, 2)
    out = paged_decode(query, pages, batch, rule, work, out=torch.empty_like(query))
    assert_as_exact(out, lambda kind: paged_attention(query.to(kind), Pages(pages.data.to(kind)), batch, rule)[0])


@pytest.mark.parametrize("length", [32_768] if CUDA else [1_000])
def test_a_long_context_among_short_ones_agrees(length: int, dtype: torch.dtype, device: torch.device) -> None:
    query, pages, batch = batch_of(Shape(2, 1, 64, 16), [3, length, 64], dtype, device)
    agrees(query, pages, batch, AttentionMask(scale=0.3), programs=200 if CUDA else 7)


class TestRefusals:
    """What cannot be computed is refused by name, before any launch."""

    def refused(self, match: str, query: torch.Tensor, pages: Pages, batch: Sequences, work: Work) -> None:
        with pytest.raises(ValueError, match=match):
            paged_decode(query, pages, batch, AttentionMask(scale=1.0), work, out=torch.empty_like(query))

    @pytest.mark.parametrize(
        ("shape", "match"),
        [
            ((1, 9, 2, 16), "query: 9 a sequence"),
            ((1, 1, 3, 16), "query: 3 heads"),
            ((2, 1, 2, 16), "query: .* does not fit 1 sequences"),
            ((1, 1, 2, 32), "query: .* does not fit"),
            ((1, 1, 2, 48), "query: head_dim 48"),
            ((1, 1, 2, 8), "query: head_dim 8"),
            ((1, 8, 64, 16), "query: 64 heads, 8 a sequence"),
        ],
    )
    def test_queries(self, shape: tuple[int, ...], match: str, device: torch.device) -> None:
        _, pages, batch = batch_of(Shape(2, 2, 16, 16), [5], torch.float32, device)
        self.refused(match, torch.zeros(shape, device=device), pages, batch, Work.empty(1, 2, 8, 16, 2, device))

    def test_results_of_another_shape_or_scattered(self, device: torch.device) -> None:
        query, pages, batch = batch_of(Shape(2, 2, 16, 16), [5], torch.float32, device)
        work = Work.empty(1, 2, 1, 16, 2, device)
        for out in (torch.empty(1, 1, 3, 16, device=device), torch.empty(1, 1, 2, 32, device=device)[..., ::2]):
            with pytest.raises(ValueError, match="out: "):
                paged_decode(query, pages, batch, AttentionMask(scale=1.0), work, out=out)

    def test_pages_with_gaps_and_other_shapes_of_sums_and_sinks(self, device: torch.device) -> None:
        query, pages, batch = batch_of(Shape(2, 2, 16, 16), [5], torch.float32, device)
        work, rule, out = Work.empty(1, 2, 1, 16, 2, device), AttentionMask(scale=1.0), torch.empty_like(query)
        self.refused("pages.data has gaps", query, Pages(pages.data.mT.contiguous().mT), batch, work)
        with pytest.raises(ValueError, match="lse has the shape"):
            paged_decode(query, pages, batch, rule, work, out=out, lse=torch.empty(1, 2, device=device))
        with pytest.raises(ValueError, match="sink_logits has the shape"):
            paged_decode(query, pages, batch, rule, work, out=out, sink_logits=torch.zeros(1, device=device))

    def test_narrow_pages_without_scales(self, device: torch.device) -> None:
        query, pages, batch = batch_of(Shape(2, 2, 16, 16), [5], torch.float32, device, torch.int8)
        self.refused("pages.scales go with", query, Pages(pages.data), batch, Work.empty(1, 2, 1, 16, 2, device))

    def test_work_for_another_model(self, device: torch.device) -> None:
        query, pages, batch = batch_of(Shape(2, 2, 16, 16), [5], torch.float32, device)
        self.refused("work: made for 1 kv heads", query, pages, batch, Work.empty(1, 1, 1, 16, 2, device))
        self.refused("work: made for", query, pages, batch, Work.empty(1, 2, 1, 32, 2, device))


def test_there_is_a_launch_that_fits_for_whatever_is_not_refused() -> None:
    types = [torch.float32, torch.bfloat16, torch.float16, torch.int8, torch.float8_e4m3fn]
    for query, pages, head_dim, rows in product(types[:3], types, [16, 64, 128, 256], [1, 16, 17, 64, 128]):
        launch = launch_for(query, pages, head_dim, rows)
        in_flight = 2 * launch.tile * head_dim * pages.itemsize * (launch.stages - 1)
        assert in_flight * launch.programs < 227 * 1024

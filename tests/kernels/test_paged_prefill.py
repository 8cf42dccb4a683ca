"""Chunks against paged contexts: what a row sees, in which pages, and that nothing else is read or written."""

from dataclasses import replace
from math import exp, log

import pytest
import torch
from tests.kernels.closeness import assert_as_exact
from tests.kernels.conftest import CUDA
from tests.kernels.pools import pages, sequences
from torch import Tensor

from paceline_kernels.paged_prefill import Tiles, paged_prefill, reference
from paceline_kernels.paged_prefill.launch import Launch
from paceline_kernels.paging import AttentionMask, Pages, Sequences

BULK = Launch(tile=16, warps=4, stages=2, bulk=True)


class Case:
    """A ragged step: `counts` tokens of contexts of `lengths`, in twice the pages that they need."""

    def __init__(
        self,
        counts: list[int],
        lengths: list[int],
        *,
        dtype: torch.dtype,
        device: torch.device,
        heads: int = 4,
        kv_heads: int = 2,
        page_tokens: int = 16,
        head_dim: int = 16,
    ) -> None:
        torch.manual_seed(0)
        self.counts, self.lengths, self.device = counts, lengths, device
        room = 2 * sum(-(-length // page_tokens) for length in lengths) + 1
        self.pages = pages(room, kv_heads, page_tokens, head_dim, dtype=dtype, device=device)
        self.sequences = sequences(lengths, page_tokens, room, device)
        self.query = torch.randn(sum(counts), heads, head_dim, device=device).to(dtype)
        self.starts = torch.tensor([0, *torch.tensor(counts).cumsum(0).tolist()], dtype=torch.int32, device=device)
        self.rule = AttentionMask(head_dim**-0.5)
        self.sinks: Tensor | None = None

    def attend(self, rows: int | None = None, launch: Launch | None = None) -> tuple[Tensor, Tensor]:
        """By the kernel."""
        tiles = Tiles.of(self.counts, self.lengths, self.device, self.group, rows)
        out = torch.full_like(self.query, torch.nan)
        lse = torch.full(self.query.shape[:2], torch.nan, device=self.device)
        found = paged_prefill(
            self.query,
            self.starts,
            self.pages,
            self.sequences,
            self.rule,
            tiles,
            sink_logits=self.sinks,
            out=out,
            lse=lse,
            launch=launch,
        )
        assert found is out
        return out, lse

    @property
    def group(self) -> int:
        return self.query.shape[1] // self.pages.kv_heads

    def expected(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """By the reference, in sums of this type."""
        query, sinks = self.query.to(dtype), self.sinks
        return reference.paged_prefill(query, self.starts, self.pages, self.sequences, self.rule, sink_logits=sinks)

    def assert_right(self, rows: int | None = None, launch: Launch | None = None) -> None:
        """The kernel's answer is as exact as its type allows."""
        out, lse = self.attend(rows, launch)
        assert_as_exact(out, lambda dtype: self.expected(dtype)[0])
        exact = self.expected(torch.float32)[1]
        empty = exact.isinf()
        assert torch.equal(lse.isinf(), empty)
        assert torch.allclose(lse[~empty], exact[~empty], atol=1e-3)


def test_a_chunk_of_two_tokens_attends_as_computed_by_hand(device: torch.device) -> None:
    case = Case([2], [3], dtype=torch.float32, device=device, heads=1, kv_heads=1)
    case.pages.data.zero_()
    page = case.sequences.table[0, 0]
    case.query.zero_()[:, 0, 0] = torch.tensor([log(2), log(3)])
    case.pages.data[page, 0, 0, :3, 0] = torch.tensor([1.0, 0.0, 2.0])
    case.pages.data[page, 0, 1, :3, 0] = torch.tensor([1.0, 10.0, 100.0])
    case.rule = AttentionMask(1.0)
    out, lse = case.attend()
    # weights: the first row 2, 1 of what it sees, the second 3, 1, 9
    by_hand = torch.tensor([(2 * 1 + 10) / 3, (3 * 1 + 10 + 9 * 100) / 13], device=device)
    assert torch.allclose(out[:, 0, 0], by_hand)
    assert torch.allclose(lse[:, 0], torch.tensor([log(3), log(13)], device=device))


@pytest.mark.parametrize("length", [1, 15, 16, 17, 40])
def test_a_whole_prompt_of_any_length_is_causal(length: int, device: torch.device, dtype: torch.dtype) -> None:
    Case([length], [length], dtype=dtype, device=device).assert_right()


@pytest.mark.parametrize(
    ("counts", "lengths"), [([5, 1, 9], [37, 1, 25]), ([16, 17], [32, 49]), ([1, 1, 1], [16, 17, 33])]
)
def test_chunks_of_a_ragged_step_see_their_own_contexts(
    counts: list[int], lengths: list[int], device: torch.device, dtype: torch.dtype
) -> None:
    Case(counts, lengths, dtype=dtype, device=device).assert_right()


@pytest.mark.parametrize("length", [200, *([32_768] if CUDA else [])])
def test_a_tail_of_a_long_context_is_right(length: int, device: torch.device, dtype: torch.dtype) -> None:
    Case([70], [length], dtype=dtype, device=device, heads=2, kv_heads=1, page_tokens=64, head_dim=128).assert_right()


def test_sequences_without_tokens_in_the_step_or_at_all_are_passed_over(
    device: torch.device, dtype: torch.dtype
) -> None:
    Case([0, 3, 0, 4], [20, 19, 0, 4], dtype=dtype, device=device).assert_right()


@pytest.mark.parametrize(("heads", "kv_heads"), [(2, 2), (6, 1), (6, 2), (7, 1), (8, 2)])
def test_query_heads_find_their_kv_head(heads: int, kv_heads: int, device: torch.device, dtype: torch.dtype) -> None:
    Case([9], [30], dtype=dtype, device=device, heads=heads, kv_heads=kv_heads).assert_right()


@pytest.mark.parametrize("page_tokens", [16, 32, 64, 128])
@pytest.mark.parametrize("head_dim", [32, 64])
def test_pages_of_any_size_and_heads_of_any_are_read(
    page_tokens: int, head_dim: int, device: torch.device, dtype: torch.dtype
) -> None:
    shape = {"page_tokens": page_tokens, "head_dim": head_dim}
    Case([7, 3], [page_tokens + 9, page_tokens], dtype=dtype, device=device, **shape).assert_right()


@pytest.mark.parametrize("rows", [16, 32, 64])
def test_a_chunk_of_many_tiles_is_cut_anywhere(rows: int, device: torch.device, dtype: torch.dtype) -> None:
    Case([45], [61], dtype=dtype, device=device, heads=3, kv_heads=1).assert_right(rows)


@pytest.mark.parametrize("tile", [16, 32, 64])
@pytest.mark.parametrize("page_tokens", [16, 32])
def test_a_tile_may_be_part_of_a_page_or_several(
    tile: int, page_tokens: int, device: torch.device, dtype: torch.dtype
) -> None:
    case = Case([20, 3], [90, 70], dtype=dtype, device=device, page_tokens=page_tokens)
    case.assert_right(launch=Launch(tile=tile, warps=4, stages=2))


@pytest.mark.parametrize("page_tokens", [16, 64])
@pytest.mark.parametrize("window", [None, 20])
def test_the_copy_engine_brings_the_same(
    page_tokens: int, window: int | None, device: torch.device, dtype: torch.dtype
) -> None:
    case = Case([9, 3], [50, 33], dtype=dtype, device=device, heads=2, kv_heads=1, page_tokens=page_tokens)
    case.rule = replace(case.rule, window=window)
    case.assert_right(launch=BULK)
    case.assert_right(launch=replace(BULK, bulk=False))


@pytest.mark.parametrize("window", [1, 7, 16, 33, 100])
@pytest.mark.parametrize("first", [0, 3, 20])
def test_a_row_sees_its_window_and_the_first_tokens(
    window: int, first: int, device: torch.device, dtype: torch.dtype
) -> None:
    case = Case([18, 2], [75, 40], dtype=dtype, device=device)
    case.rule = replace(case.rule, window=window, first=first)
    case.assert_right(launch=Launch(tile=16, warps=4, stages=2))


@pytest.mark.parametrize("tile", [16, 32])
@pytest.mark.parametrize("first", [0, 3, 20])
def test_pages_out_of_sight_are_neither_in_the_table_nor_read(
    tile: int, first: int, device: torch.device, dtype: torch.dtype
) -> None:
    case = Case([6], [86], dtype=dtype, device=device, heads=2, kv_heads=2)
    case.rule = replace(case.rule, window=20, first=first)
    whole = case.attend(launch=Launch(tile=tile, warps=4, stages=2))
    head, dropped = case.rule.head(16), (80 + 1 - 20) // 16 - case.rule.head(16)
    table = case.sequences.table
    gone, kept = table[:, head : head + dropped], torch.cat([table[:, :head], table[:, head + dropped :]], 1)
    case.pages.data[gone.long()] = torch.nan
    beyond = [page for page in range(len(case.pages.data)) if page not in table]
    case.pages.data[beyond] = torch.nan
    case.sequences = Sequences(kept, case.sequences.lengths, torch.full_like(case.sequences.dropped, dropped))
    case.assert_right(launch=Launch(tile=tile, warps=4, stages=2))
    assert all(torch.equal(*pair) for pair in zip(case.attend(launch=Launch(tile, 4, 2)), whole, strict=True))


@pytest.mark.parametrize("bulk", [False, True])
def test_what_lies_behind_the_last_token_never_matters(bulk: bool, device: torch.device, dtype: torch.dtype) -> None:
    case = Case([5, 2], [37, 18], dtype=dtype, device=device)
    before = case.attend(launch=replace(BULK, bulk=bulk))
    mine = torch.zeros(len(case.pages.data), 16, dtype=torch.bool, device=device)
    for row, length in enumerate(case.lengths):
        for place in range(length):
            mine[case.sequences.table[row, place // 16], place % 16] = True
    case.pages.data.permute(0, 3, 1, 2, 4)[~mine] = torch.nan
    after = case.attend(launch=replace(BULK, bulk=bulk))
    assert all(torch.equal(*pair) for pair in zip(before, after, strict=True))


def test_scores_are_capped(device: torch.device, dtype: torch.dtype) -> None:
    case = Case([9, 2], [40, 20], dtype=dtype, device=device)
    case.rule = AttentionMask(2.0, cap=3.0)
    case.assert_right()


def test_a_sink_takes_weight_and_gives_no_value(device: torch.device, dtype: torch.dtype) -> None:
    case = Case([9, 2], [40, 20], dtype=dtype, device=device)
    case.sinks = torch.tensor([-3.0, 0.0, 2.0, 30.0], device=device)
    case.assert_right()


def test_a_sink_alone_beside_one_key_halves_it(device: torch.device) -> None:
    case = Case([1], [1], dtype=torch.float32, device=device, heads=1, kv_heads=1)
    case.query.zero_()
    case.sinks = torch.zeros(1, device=device)
    out, lse = case.attend()
    assert torch.allclose(out[0, 0], case.pages.data[case.sequences.table[0, 0], 0, 1, 0] / 2)
    assert exp(lse.item()) == pytest.approx(2.0)


@pytest.mark.parametrize("kind", [torch.int8, torch.float8_e4m3fn] if CUDA else [torch.int8], ids=str)
@pytest.mark.parametrize("bulk", [False, True])
def test_narrow_pages_are_scaled_token_by_token(
    kind: torch.dtype, bulk: bool, device: torch.device, dtype: torch.dtype
) -> None:
    case = Case([9, 2], [40, 20], dtype=dtype, device=device)
    case.pages = _narrow(case.pages, kind)
    case.assert_right(launch=replace(BULK, bulk=bulk))


def _narrow(wide: Pages, kind: torch.dtype) -> Pages:
    data, most = wide.data.float(), 127.0 if kind == torch.int8 else 448.0
    scales = data.abs().amax(-1) / most * (1 + torch.rand(data.shape[:-1], device=data.device))
    scaled = data / scales[..., None]
    return Pages((scaled.round() if kind == torch.int8 else scaled).to(kind), scales)


@pytest.mark.parametrize("bulk", [False, True])
def test_pages_beyond_two_thousand_million_numbers_are_reached(bulk: bool, device: torch.device) -> None:
    case = Case([3], [20], dtype=torch.float32, device=device, head_dim=16)
    far = 2_200_000  # times 2 heads, 2 parts, 16 tokens and 16 numbers: beyond 2^31
    vast = torch.empty((far + 1, *case.pages.data.shape[1:]), device=device)
    vast[[far - 5, far]] = case.pages.data[case.sequences.table[0, :2].long()]
    before, _ = case.attend(launch=replace(BULK, bulk=bulk))
    case.pages = Pages(vast)
    case.sequences.table[0, :2] = torch.tensor([far - 5, far])
    assert torch.equal(case.attend(launch=replace(BULK, bulk=bulk))[0], before)


@pytest.mark.parametrize("rows", [2, 4, 6])
def test_an_answer_of_other_rows_than_the_query_is_refused(rows: int, device: torch.device) -> None:
    case = Case([3], [5], dtype=torch.float32, device=device)
    tiles = Tiles.of(case.counts, case.lengths, device, case.group)
    out = torch.empty(rows, *case.query.shape[1:], device=device)
    with pytest.raises(ValueError, match=r"^out has the shape"):
        paged_prefill(case.query, case.starts, case.pages, case.sequences, case.rule, tiles, out=out)


def test_the_pool_and_the_query_stay_as_they_were(device: torch.device, dtype: torch.dtype) -> None:
    case = Case([9, 2], [40, 20], dtype=dtype, device=device)
    before = case.pages.data.clone(), case.query.clone()
    case.attend()
    assert torch.equal(before[0], case.pages.data)
    assert torch.equal(before[1], case.query)


def test_a_step_without_rows_launches_nothing(device: torch.device, dtype: torch.dtype) -> None:
    out, _ = Case([0, 0], [5, 0], dtype=dtype, device=device).attend()
    assert not len(out)


def test_the_copy_engine_is_not_asked_for_more_than_a_page(device: torch.device) -> None:
    with pytest.raises(ValueError, match="launch: the copy engine"):
        Case([3], [5], dtype=torch.float32, device=device).attend(launch=replace(BULK, tile=32))


def test_the_copy_engine_is_told_once_of_a_pool(device: torch.device) -> None:
    case = Case([3], [5], dtype=torch.float32, device=device)
    case.attend(launch=BULK)
    first = case.pages.descriptors[16]
    case.attend(launch=BULK)
    assert case.pages.descriptors[16] is first


def test_tiles_whose_heads_share_no_kv_head_are_refused(device: torch.device) -> None:
    case = Case([3], [5], dtype=torch.float32, device=device)
    tiles = Tiles.of([3], [5], device, group=4)
    with pytest.raises(ValueError, match=r"^tiles: 4 heads in each; 2 share"):
        paged_prefill(
            case.query, case.starts, case.pages, case.sequences, case.rule, tiles, out=torch.empty_like(case.query)
        )


@pytest.mark.parametrize(
    ("named", "change"),
    [
        ("query", {"query": torch.zeros(3, 4, 32)}),
        ("query", {"query": torch.zeros(3, 3, 16)}),
        ("pages", {"pages": Pages(torch.zeros(3, 2, 2, 8, 16))}),
        ("pages", {"pages": Pages(torch.zeros(3, 2, 2, 16, 16, dtype=torch.int8))}),
        ("sink_logits", {"sinks": torch.zeros(3)}),
        ("starts", {"starts": torch.zeros(3, dtype=torch.int32)}),
        ("query", {"query": torch.zeros(3, 4, 32).transpose(0, 1)}),
        ("rule", {"rule": AttentionMask(0.0)}),
    ],
)
def test_what_does_not_fit_is_refused_by_name(named: str, change: dict[str, object], device: torch.device) -> None:
    case = Case([3], [5], dtype=torch.float32, device=device)
    for name, value in change.items():
        setattr(case, name, value)
    with pytest.raises(ValueError, match=f"^{named}"):
        case.attend()

"""Decode steps with shared prefixes equal attention to each sequence's whole context."""

from itertools import accumulate

import pytest
import torch
from tests.kernels.closeness import assert_as_exact
from tests.kernels.pools import pages, sequences
from torch import Tensor

from paceline_kernels.cascade import Groups, cascade_decode, reference
from paceline_kernels.paging import Rule
from paceline_kernels.work_list.launch import Work, plan_work

PAGE = 16


class Case:
    """Groups of so many `members` behind prefixes of so many `shared` pages, with tails of these lengths."""

    def __init__(
        self,
        members: list[int],
        shared: list[int],
        tails: list[int],
        *,
        dtype: torch.dtype,
        device: torch.device,
        heads: int = 4,
        least: int = 512,
    ) -> None:
        torch.manual_seed(0)
        used = sum(-(-length // PAGE) for length in tails) + sum(shared)
        self.pages = pages(used, 2, PAGE, 16, dtype=dtype, device=device)
        every = sequences([*tails, *(count * PAGE for count in shared)], PAGE, used, device)
        tables = every.table.tolist()
        prefixes = [tables[len(tails) + number][:count] for number, count in enumerate(shared)]
        self.groups = Groups.of(members, prefixes, PAGE, device, heads // 2, least=least)
        self.tails = type(every)(every.table[: len(tails)], every.lengths[: len(tails)], every.dropped[: len(tails)])
        self.query = torch.randn(len(tails), 1, heads, 16, device=device).to(dtype)
        self.rule = Rule(0.25)
        self.sinks: Tensor | None = None

    def attend(self) -> tuple[Tensor, Tensor]:
        """By the kernels."""
        work = Work.empty(len(self.tails), 2, self.query.shape[2] // 2, 16, 4, self.query.device)
        plan_work(self.tails, PAGE, self.rule, work)
        out = torch.full_like(self.query, torch.nan)
        lse = torch.full(self.query.shape[:-1], torch.nan, device=self.query.device)
        cascade_decode(
            self.query,
            self.pages,
            self.groups,
            self.tails,
            self.rule,
            work,
            sink_logits=self.sinks,
            out=out,
            lse=lse,
        )
        return out, lse

    def expected(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """By attention to whole contexts."""
        query = self.query.to(dtype)
        return reference.cascade_decode(query, self.pages, self.groups, self.tails, self.rule, sink_logits=self.sinks)

    def assert_right(self) -> None:
        out, lse = self.attend()
        assert_as_exact(out, lambda dtype: self.expected(dtype)[0])
        exact = self.expected(torch.float32)[1]
        assert torch.equal(lse.isinf(), exact.isinf())
        assert torch.allclose(lse[exact.isfinite()], exact[exact.isfinite()], atol=1e-4)


@pytest.mark.parametrize(
    ("members", "shared", "tails"),
    [
        ([3], [2], [1, 20, 16]),
        ([2, 3], [1, 3], [5, 17, 1, 2, 33]),
        ([1], [1], [1]),
    ],
)
def test_members_of_a_group_see_its_prefix_and_their_own_tails(
    members: list[int], shared: list[int], tails: list[int], device: torch.device, dtype: torch.dtype
) -> None:
    Case(members, shared, tails, dtype=dtype, device=device).assert_right()


def test_sequences_that_share_nothing_form_a_group_without_a_prefix(device: torch.device, dtype: torch.dtype) -> None:
    Case([2, 3], [2, 0], [5, 17, 1, 40, 16], dtype=dtype, device=device).assert_right()


def test_an_empty_place_of_the_batch_gives_nothing(device: torch.device, dtype: torch.dtype) -> None:
    case = Case([2, 2], [1, 0], [5, 17, 3, 0], dtype=dtype, device=device)
    case.sinks = torch.tensor([-1.0, 0.0, 1.0, 2.0], device=device)
    out, lse = case.attend()
    assert not out[3].any()
    assert torch.equal(lse[3], torch.full_like(lse[3], -torch.inf))
    case.assert_right()


def test_a_sink_counts_once(device: torch.device, dtype: torch.dtype) -> None:
    case = Case([3], [2], [4, 18, 1], dtype=dtype, device=device)
    case.sinks = torch.tensor([-3.0, 0.0, 2.0, 8.0], device=device)
    case.assert_right()


def test_scores_are_capped_in_both_parts(device: torch.device, dtype: torch.dtype) -> None:
    case = Case([3], [2], [4, 18, 1], dtype=dtype, device=device)
    case.rule = Rule(2.0, cap=3.0)
    case.assert_right()


def test_heads_of_any_group_go_together(device: torch.device, dtype: torch.dtype) -> None:
    Case([18], [1], [1] * 18, dtype=dtype, device=device, heads=2).assert_right()


def test_by_hand_two_members_weigh_one_shared_token_and_their_own(device: torch.device) -> None:
    case = Case([2], [1], [1, 1], dtype=torch.float32, device=device)
    case.query.zero_()
    case.pages.data[:, :, 1] = 1.0
    for row, page in enumerate(case.tails.table[:, 0].tolist()):
        case.pages.data[page, :, 1, 0] = 18.0 + 17 * row
    out, lse = case.attend()
    # 16 tokens of the prefix are worth 1 each, the seventeenth is the member's own
    assert torch.allclose(out, torch.tensor([2.0, 3.0], device=device).view(2, 1, 1, 1))
    assert torch.allclose(lse.exp(), torch.full_like(lse, 17.0))


def test_a_window_is_refused(device: torch.device) -> None:
    case = Case([2], [1], [1, 1], dtype=torch.float32, device=device)
    case.rule = Rule(1.0, window=5)
    with pytest.raises(ValueError, match="rule: a prefix"):
        case.attend()


def test_a_long_prefix_is_attended_to_in_parts(device: torch.device, dtype: torch.dtype) -> None:
    case = Case([2, 1, 1], [7, 2, 0], [3, 20, 1, 5], dtype=dtype, device=device, heads=2, least=32)
    assert case.groups.parts == 3
    case.assert_right()


@pytest.mark.parametrize(
    ("members", "held", "programs", "parts"),
    [(8, 100, 32, 25), (8, 16, 32, 4), (8, 3, 32, 1), (64, 100, 32, 16), (2000, 100, 32, 1), (8, 100, 4, 4)],
)
def test_prefixes_are_cut_so_that_programs_have_work(members: int, held: int, programs: int, parts: int) -> None:
    groups = Groups.of([members], [range(held)], 128, "cpu", group=4, programs=programs)
    assert groups.parts == parts
    tables = zip(groups.prefixes.table.tolist(), groups.prefixes.lengths.tolist(), strict=True)
    assert [page for table, length in tables for page in table[: length // 128]] == list(range(held))
    assert groups.starts.tolist() == [members * part for part in range(parts + 1)]


def test_groups_tell_their_rows_and_prefixes() -> None:
    groups = Groups.of([2, 3], [[7, 8], []], 16, "cpu", group=2)
    assert groups.starts.tolist() == [0, *accumulate([2, 3])]
    assert groups.prefixes.lengths.tolist() == [32, 0]
    assert groups.prefixes.table.tolist() == [[7, 8], [0, 0]]
    assert groups.tiles.list.tolist() == [[0, 0], [1, 0]]
    assert groups.tiles.packed == 2

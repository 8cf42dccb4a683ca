"""What programs of a work list left of one softmax is put together."""

import math

import pytest
import torch
from tests.kernels.closeness import assert_as_exact

from paceline_kernels.merge_splits.launch import merge_splits
from paceline_kernels.merge_splits.reference import merged
from paceline_kernels.paging import AttentionMask, Sequences
from paceline_kernels.work_list.launch import Work, plan_work


@pytest.mark.parametrize("sink", [None, math.log(2)])
def test_partials_of_a_head_cut_in_three_are_merged_and_its_neighbours_left(
    sink: float | None, device: torch.device
) -> None:
    """Two heads of five tiles for five programs of two: the third ends the first head and begins the second."""
    lengths = torch.tensor([0, 5 * 16], dtype=torch.int32, device=device)
    batch = Sequences(torch.zeros((2, 5), dtype=torch.int32, device=device), lengths, torch.zeros_like(lengths))
    work = Work.empty(2, 2, 1, 16, 5, device, tile=16, least=1)
    plan_work(batch, 16, AttentionMask(scale=1.0), work)
    work.partials.fill_(math.nan)
    work.lses.fill_(math.nan)
    # programs' tiles of (head 0 | head 1): 00, 00, 0|1, 11, 11; 2p: the end of a head begun before, 2p + 1: a beginning
    for slot, value, weight in [(1, 1, 2), (2, 2, 4), (4, 4, 2), (5, 3, 1), (6, 5, 2), (8, 7, 1)]:
        work.partials[slot], work.lses[slot] = float(value), math.log2(weight)
    sinks = None if sink is None else torch.full((2,), sink, device=device)
    out, lse = torch.full((2, 1, 2, 16), math.nan, device=device), torch.full((2, 1, 2), math.nan, device=device)
    merge_splits(work, batch, sink_logits=sinks, out=out, lse=lse)
    lost = 0 if sink is None else 2
    assert out[1, 0, :, 0].tolist() == pytest.approx([18 / (8 + lost), 20 / (4 + lost)])
    assert lse[1, 0].tolist() == pytest.approx([math.log(8 + lost), math.log(4 + lost)])
    assert out[0].abs().max() == 0
    assert lse[0, 0].tolist() == [-math.inf, -math.inf]


def test_a_head_that_one_program_computed_is_left_alone(device: torch.device) -> None:
    lengths = torch.tensor([30, 17], dtype=torch.int32, device=device)
    batch = Sequences(torch.zeros((2, 2), dtype=torch.int32, device=device), lengths, torch.zeros_like(lengths))
    work = Work.empty(2, 1, 1, 16, 2, device, tile=16, least=1)
    plan_work(batch, 16, AttentionMask(scale=1.0), work)
    out = torch.full((2, 1, 1, 16), 9.0, device=device)
    assert bool((merge_splits(work, batch, out=out) == 9).all())


@pytest.mark.parametrize("parts", [31, 32, 33, 70])
def test_as_many_parts_as_there_are_programs_are_merged(parts: int, device: torch.device) -> None:
    lengths = torch.tensor([parts * 16], dtype=torch.int32, device=device)
    batch = Sequences(torch.zeros((1, parts), dtype=torch.int32, device=device), lengths, torch.zeros_like(lengths))
    work = Work.empty(1, 1, 2, 16, parts, device, tile=16, least=1)
    plan_work(batch, 16, AttentionMask(scale=1.0), work)
    slots = torch.tensor([1, *range(2, 2 * parts, 2)], device=device)
    work.partials.fill_(math.nan)
    work.lses.fill_(math.nan)
    work.partials[slots] = torch.randn(parts, 2, 16, device=device)
    work.lses[slots] = 10 * torch.randn(parts, 2, device=device)
    out = merge_splits(work, batch, out=torch.empty(1, 1, 2, 16, device=device))
    exact, _ = merged(work.partials[slots][:, None], work.lses[slots][:, None] * math.log(2))
    assert_as_exact(out[0], lambda _: exact)

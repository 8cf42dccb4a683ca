"""Parts of a softmax put together: whole states, and what programs of a work list left behind."""

import math

import pytest
import torch
from tests.kernels.closeness import assert_as_exact

from paceline_kernels.merge_splits.launch import merge_splits, merge_states
from paceline_kernels.merge_splits.reference import merged
from paceline_kernels.paging import Rule, Sequences
from paceline_kernels.work_list.launch import Work, plan_work


def test_two_states_weigh_as_their_sums(device: torch.device) -> None:
    outs = torch.tensor([1.0, 5.0], device=device).view(2, 1, 1, 1).expand(2, 1, 1, 16).contiguous()
    lses = torch.tensor([3.0, 1.0], device=device).log().view(2, 1, 1)
    out, lse = torch.empty(1, 1, 16, device=device), torch.empty(1, 1, device=device)
    merge_states(outs, lses, out, lse)
    assert out.flatten().tolist() == pytest.approx([(3 * 1 + 5) / 4] * 16)
    assert lse.item() == pytest.approx(math.log(4))


def test_a_state_that_saw_nothing_has_no_part_whatever_it_holds(device: torch.device) -> None:
    outs = torch.full((2, 2, 1, 16), math.nan, device=device)
    outs[0, 0] = 7.0
    lses = torch.tensor([[2.0, -math.inf], [-math.inf, -math.inf]], device=device)[..., None]
    out, lse = torch.empty(2, 1, 16, device=device), torch.empty(2, 1, device=device)
    merge_states(outs, lses, out, lse)
    assert out[:, 0].tolist() == [[7.0] * 16, [0.0] * 16]
    assert lse.flatten().tolist() == pytest.approx([2.0, -math.inf])


@pytest.mark.parametrize(("parts", "rows", "heads", "head_dim"), [(1, 1, 1, 16), (2, 5, 3, 64), (7, 11, 2, 128)])
def test_states_agree_with_the_reference(
    parts: int, rows: int, heads: int, head_dim: int, dtype: torch.dtype, device: torch.device
) -> None:
    outs = torch.randn(parts, rows, heads, head_dim, device=device).to(dtype)
    lses = 30 * torch.randn(parts, rows, heads, device=device)
    out, lse = torch.empty_like(outs[0]), torch.empty_like(lses[0])
    merge_states(outs, lses, out, lse)
    assert_as_exact(out, lambda kind: merged(outs.to(kind), lses.to(kind))[0])
    assert_as_exact(lse, lambda _: merged(outs.float(), lses)[1])


def test_states_and_logarithms_of_other_shapes_are_refused(device: torch.device) -> None:
    outs = torch.zeros(2, 3, 1, 16, device=device)
    with pytest.raises(ValueError, match="outs: "):
        merge_states(outs, torch.zeros(2, 1, 3, device=device), outs[0])


@pytest.mark.parametrize("sink", [None, math.log(2)])
def test_partials_of_a_head_cut_in_three_are_merged_and_its_neighbours_left(
    sink: float | None, device: torch.device
) -> None:
    """Two heads of five tiles for five programs of two: the third ends the first head and begins the second."""
    lengths = torch.tensor([0, 5 * 16], dtype=torch.int32, device=device)
    batch = Sequences(torch.zeros((2, 5), dtype=torch.int32, device=device), lengths, torch.zeros_like(lengths))
    work = Work.empty(2, 2, 1, 16, 5, device, tile=16, least=1)
    plan_work(batch, 16, Rule(scale=1.0), work)
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
    plan_work(batch, 16, Rule(scale=1.0), work)
    out = torch.full((2, 1, 1, 16), 9.0, device=device)
    assert bool((merge_splits(work, batch, out=out) == 9).all())


@pytest.mark.parametrize("parts", [31, 32, 33, 70])
def test_as_many_parts_as_there_are_programs_are_merged(parts: int, device: torch.device) -> None:
    lengths = torch.tensor([parts * 16], dtype=torch.int32, device=device)
    batch = Sequences(torch.zeros((1, parts), dtype=torch.int32, device=device), lengths, torch.zeros_like(lengths))
    work = Work.empty(1, 1, 2, 16, parts, device, tile=16, least=1)
    plan_work(batch, 16, Rule(scale=1.0), work)
    slots = torch.tensor([1, *range(2, 2 * parts, 2)], device=device)
    work.partials.fill_(math.nan)
    work.lses.fill_(math.nan)
    work.partials[slots] = torch.randn(parts, 2, 16, device=device)
    work.lses[slots] = 10 * torch.randn(parts, 2, device=device)
    out = merge_splits(work, batch, out=torch.empty(1, 1, 2, 16, device=device))
    exact, _ = merged(work.partials[slots][:, None], work.lses[slots][:, None] * math.log(2))
    assert_as_exact(out[0], lambda _: exact)

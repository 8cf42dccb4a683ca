"""Attention of few queries to pages: by hand, then against the reference on whatever is odd."""

import math
from collections.abc import Callable

import pytest
import torch

from paceline_kernels.paged_decode.launch import paged_decode
from paceline_kernels.paged_decode.reference import paged_attention
from paceline_kernels.paging import Pages, Rule, Sequences
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
    query: torch.Tensor, pages: Pages, sequences: Sequences, rule: Rule, sinks: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    heads = query.shape[2] // pages.kv_heads
    work = Work.empty(len(sequences), pages.kv_heads, heads * query.shape[1], pages.head_dim, 3, query.device, least=1)
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
        out, lse = compute(query, *three_tokens(device), Rule(scale=1.0))
        assert out[0, 0, 0].tolist() == pytest.approx([(2 * 1 + 2 + 4) / 4] * 16)
        assert lse.item() == pytest.approx(math.log(4))

    def test_of_two_queries_the_first_does_not_see_the_last_token(self, compute: Compute, device: torch.device) -> None:
        out, lse = compute(torch.zeros(1, 2, 1, 16, device=device), *three_tokens(device), Rule(scale=1.0))
        assert out[0, :, 0, 0].tolist() == pytest.approx([1.5, 7 / 3])
        assert lse[0, :, 0].tolist() == pytest.approx([math.log(2), math.log(3)])

    def test_a_window_counts_the_token_that_looks(self, compute: Compute, device: torch.device) -> None:
        out, _ = compute(torch.zeros(1, 1, 1, 16, device=device), *three_tokens(device), Rule(scale=1.0, window=2))
        assert out[0, 0, 0, 0].item() == pytest.approx(3)

    def test_first_tokens_stay_in_sight_behind_a_window(self, compute: Compute, device: torch.device) -> None:
        rule = Rule(scale=1.0, window=1, first=1)
        out, _ = compute(torch.zeros(1, 1, 1, 16, device=device), *three_tokens(device), rule)
        assert out[0, 0, 0, 0].item() == pytest.approx(2.5)

    def test_a_sink_takes_its_share_and_gives_nothing(self, compute: Compute, device: torch.device) -> None:
        sinks = torch.zeros(1, device=device)
        query = torch.zeros(1, 1, 1, 16, device=device)
        out, lse = compute(query, *three_tokens(device), Rule(scale=1.0), sinks)
        assert out[0, 0, 0, 0].item() == pytest.approx(7 / 4)
        assert lse.item() == pytest.approx(math.log(4))

    def test_a_cap_bends_large_scores(self, compute: Compute, device: torch.device) -> None:
        query = torch.zeros(1, 1, 1, 16, device=device)
        query[..., 0] = 1e6
        out, lse = compute(query, *three_tokens(device), Rule(scale=1.0, cap=math.log(2)))
        assert out[0, 0, 0, 0].item() == pytest.approx((2 * 1 + 2 + 4) / 4)
        assert lse.item() == pytest.approx(math.log(4))

    def test_a_query_before_the_first_token_sees_nothing(self, compute: Compute, device: torch.device) -> None:
        pages, sequences = three_tokens(device)
        query = torch.zeros(1, 4, 1, 16, device=device)
        out, lse = compute(query, pages, sequences, Rule(scale=1.0), torch.zeros(1, device=device))
        assert out[0, :, 0, 0].tolist() == pytest.approx([0, 1 / 2, 1, 7 / 4])
        assert lse[0, 0].item() == -math.inf

    def test_scales_multiply_what_narrow_pages_hold(self, compute: Compute, device: torch.device) -> None:
        pages, sequences = three_tokens(device)
        scales = torch.ones(pages.data.shape[:-1], device=device)
        scales[1, 0, 0, 0], scales[1, 0, 1, 2] = math.log(2), 0.5
        narrow = Pages(pages.data.to(torch.int8), scales)
        out, _ = compute(torch.eye(1, 16, device=device).view(1, 1, 1, 16), narrow, sequences, Rule(scale=1.0))
        assert out[0, 0, 0, 0].item() == pytest.approx((2 * 1 + 2 + 4 * 0.5) / 4)

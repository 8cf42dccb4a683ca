"""Requests become bins of sums, with what a cache would know, and the spread of their lengths."""

import pytest

from paceline_autoscaler.policies.fluid_types import DemandBin
from paceline_simulator.bins import demand_bins, length_spread
from paceline_simulator.traces import BLOCK, TraceRequest


def test_a_bin_sums_its_requests() -> None:
    requests = [TraceRequest(0.5, 100, 10), TraceRequest(0.9, 300, 20), TraceRequest(2.0, 100, 10)]
    first, second, third = demand_bins(requests, 1.0, span_s=3.0)
    pairs = 100**2 / 2 + 300**2 / 2
    assert first == DemandBin(2, 400, 30, 0, pairs, 10 * 105 + 20 * 310)
    assert second == DemandBin()
    assert third.arrivals == 1


def test_bins_end_with_the_span_and_hold_every_request_before() -> None:
    requests = [TraceRequest(float(second), 10, 1) for second in range(10)]
    assert [each.arrivals for each in demand_bins(requests, 4.0, span_s=8.0)] == [4, 4]
    assert [each.arrivals for each in demand_bins(requests, 4.0)] == [4, 4, 2]
    assert demand_bins([]) == [DemandBin()]


def test_an_infinite_cache_knows_the_blocks_that_begin_an_earlier_prompt() -> None:
    prompt = 2 * BLOCK + 100
    requests = [
        TraceRequest(0.0, prompt, 1, (1, 2, 3)),
        TraceRequest(1.0, prompt, 1, (1, 2, 4)),
        TraceRequest(2.0, prompt, 1, (5, 2, 3)),
        TraceRequest(3.0, prompt, 1, (1, 2, 3)),
        TraceRequest(4.0, prompt, 1),
    ]
    bins = demand_bins(requests, 1.0)
    assert [each.cached_tokens for each in bins] == [0, 2 * BLOCK, 0, prompt - 1, 0]
    assert bins[1].attended_pairs == 100 * (prompt - 50)


def test_a_given_share_of_each_prompt_is_cached() -> None:
    (found,) = demand_bins([TraceRequest(0.0, 1000, 1, (1,))], hit_share=0.25)
    assert (found.cached_tokens, found.attended_pairs) == (250, 750 * 625)


def test_a_spread_is_relative_to_the_mean_and_keeps_it() -> None:
    requests = [TraceRequest(0.0, prompt, 8) for prompt in (400, 100, 300, 200)]
    spread = length_spread(requests, shares=2)
    assert list(spread.prompt) == pytest.approx([0.6, 1.4])
    assert spread.output == (1.0, 1.0)
    assert sum(length_spread(requests, shares=20).prompt) == pytest.approx(4)


def test_without_requests_or_tokens_all_lengths_are_alike() -> None:
    assert length_spread([]).prompt == (1.0,)
    assert length_spread([TraceRequest(0.0, 10, 0)]).output == (1.0,)

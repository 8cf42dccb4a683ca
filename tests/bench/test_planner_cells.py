"""The cells of the planner's benchmark: their requests, and the goodput that is read off simulated rates."""

from dataclasses import replace
from random import Random

import pytest
from benchmarks.planner import cells
from benchmarks.planner.cells import GRID, MOST_RUNS, crossing, missed

from paceline_simulator.traces import BLOCK

CACHED = next(cell for cell in GRID if cell.lengths.cached)
CHAT = GRID[0]


def test_requests_have_the_lengths_of_their_cell_and_share_what_is_cached() -> None:
    drawn = [cells._request(CHAT, Random(seed)) for seed in range(4000)]
    assert sum(one.prompt_tokens for one in drawn) / 4000 == pytest.approx(1000, rel=0.1)
    assert sum(one.output_tokens for one in drawn) / 4000 == pytest.approx(200, rel=0.1)
    first, second = (cells._request(CACHED, Random(seed)) for seed in (1, 2))
    shared = [one for one in first.blocks if one in second.blocks]
    assert len(shared) * BLOCK == first.prompt_tokens * CACHED.lengths.cached


def test_a_rate_below_goodput_misses_little_and_one_far_above_nearly_all() -> None:
    rate, short = CHAT.pool.goodput(), replace(CHAT, replicas=1)
    assert missed(short, 0.5 * rate, 10.0)["missed"] <= 0.01
    assert missed(short, 3.0 * rate, 20.0)["missed"] >= 0.5


def test_goodput_lies_between_the_last_rate_that_keeps_the_promise_and_the_first_that_does_not() -> None:
    for start in (17.0, 21.0, 24.0):
        found, runs = crossing(lambda rate: {"rate": rate, "missed": 0.05 * (rate / 20) ** 4}, 0.05, start)
        assert found == pytest.approx(20, rel=1e-6)
        assert len(runs) <= MOST_RUNS

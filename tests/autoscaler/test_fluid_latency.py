"""TTFT and TPOT of parts of the requests, with the spread of lengths."""

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from paceline_autoscaler.policies.fluid_latency import Latencies
from paceline_autoscaler.policies.fluid_pool import STEPS_AHEAD, Answers, Ended
from paceline_autoscaler.policies.fluid_queue import Part
from paceline_autoscaler.policies.fluid_types import CLASS, LengthSpread
from paceline_autoscaler.types import SloTarget
from paceline_core.wire import StepTime
from paceline_planner.replica import RequestMix

STEP = StepTime(base=0.02, prefill=1e-4, context=1e-8)
MIX = RequestMix(1000.0, 1000.0, 50.0, 0.1 + 1e-8 * 500_000, 0.0, 0.0)
SPREAD = LengthSpread((0.5, 1.5), (0.2, 1.8))
LATENCIES = Latencies(STEP, SPREAD, MIX)
BUSY = Answers(Part(0.0, 1.0, 10.0, MIX, 1.0, 1.0), 1.0, 0.05, 0.02, 0.1)


def own_s(prompt: float) -> float:
    """Seconds of a prompt at four fifths of a replica's time; the quadratic part keeps its mean."""
    square = 1e-8 * 500_000 / ((0.5**2 + 1.5**2) / 2)
    return (1e-4 * prompt + square * (prompt / 1000) ** 2) / 0.8


def test_each_prompt_of_the_spread_has_its_own_first_token() -> None:
    ended = [Ended(3.0, BUSY, 0.05)]
    ahead_s = 1.0 + STEPS_AHEAD * 0.05
    assert LATENCIES.ttft_s(ended, 0.4) == pytest.approx(ahead_s + own_s(500))
    assert LATENCIES.ttft_s(ended, 0.99) == pytest.approx(ahead_s + own_s(1500))


def test_a_limit_that_grows_with_the_prompt_is_compared_for_each() -> None:
    least = 1.0 + STEPS_AHEAD * 0.05
    only_short = SloTarget(CLASS, "ttft", 0.99, least + (own_s(500) + own_s(1500)) / 2)
    assert LATENCIES.share_in_time(BUSY, only_short) == 0.5
    assert LATENCIES.share_in_time(BUSY, replace(only_short, per_prompt_token=1.0)) == 1.0
    assert LATENCIES.share_in_time(BUSY, replace(only_short, seconds=least)) == 0.0


def test_a_short_answer_may_meet_long_steps_alone() -> None:
    ended = [Ended(3.0, BUSY, 0.05)]
    assert LATENCIES.tpot_s(ended, 0.5) == pytest.approx(0.05, abs=0.005)
    assert LATENCIES.tpot_s(ended, 0.999) == pytest.approx(0.1, abs=1e-4)
    only_long = Latencies(STEP, LengthSpread(output=(1000.0,)), MIX)
    assert 0.05 < only_long.tpot_s(ended, 0.99) < 0.06


def test_the_worst_period_makes_the_high_quantile() -> None:
    calm = Answers(BUSY.part, 1.0, 0.021, 0.02, 0.1)
    ended = [*(Ended(at, calm, 0.021) for at in (1.0, 20.0, 40.0)), Ended(50.0, BUSY, 0.09)]
    assert LATENCIES.tpot_s(ended, 0.5) < 0.04
    assert LATENCIES.tpot_s(ended, 0.99) > 0.09


@given(st.floats(0.02, 0.05136616479265363))
@example(0.05136616479265362)  # its distance from the shortest is, rounded, that of the longest
def test_a_tpot_is_between_the_shortest_and_the_longest_step(mean: float) -> None:
    answers = replace(BUSY, part=replace(BUSY.part, requests=1.0), longest_step_s=0.05136616479265363)
    for quantile in (0.01, 0.5, 0.99):
        assert 0.02 <= LATENCIES.tpot_s([Ended(3.0, answers, mean)], quantile) <= 0.0514

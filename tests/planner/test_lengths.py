"""Lengths of requests: parts, quantiles, what completed requests tell, and what admission counts with."""

from dataclasses import dataclass
from math import exp, log, sqrt
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline_planner.lengths import ADMITTED_QUANTILE, SHARES, LengthDistribution
from paceline_workers.engine.scheduling import admission


@dataclass
class Completed:
    requests: float
    prompt_tokens: float
    cached_tokens: float
    output_tokens: float
    attended_pairs: float
    kv_reads: float


def drawn(mean: float, cv: float, count: int, seed: int) -> list[float]:
    square, random = log(1 + cv**2), Random(seed)
    return [random.lognormvariate(log(mean) - square / 2, sqrt(square)) for _ in range(count)]


def test_the_parts_of_prompts_have_the_mean_and_nearly_the_second_moment() -> None:
    lengths = LengthDistribution(1000, 100, 1.0)
    parts = lengths.prompts()
    assert sum(share * part for share, part in zip(SHARES, parts, strict=True)) == pytest.approx(1000)
    square = sum(share * part**2 for share, part in zip(SHARES, parts, strict=True)) / 1000**2
    assert square == pytest.approx(2.0, rel=0.05)
    assert LengthDistribution(1000, 100, 0.0).prompts() == pytest.approx([1000] * len(SHARES))


def test_a_quantile_is_that_of_the_log_normal() -> None:
    assert LengthDistribution(1000, 1, 1.0).prompt_quantile(0.95) == pytest.approx(
        sorted(drawn(1000, 1, 200_000, 1))[190_000], rel=0.02
    )
    assert LengthDistribution(1000, 1, 0.0).prompt_quantile(0.99) == 1000
    assert LengthDistribution(1000, 1, 1.0).prompt_quantile(0.5) == pytest.approx(1000 * exp(-log(2) / 2))


def test_completed_requests_tell_their_means_and_spreads() -> None:
    prompts, outputs = drawn(2000, 0.8, 50_000, 2), drawn(300, 1.2, 50_000, 3)
    cached = 0.25
    pairs = sum(0.75 * prompt * (prompt - 0.375 * prompt) for prompt in prompts)
    reads = sum(output * (prompt + output / 2) for prompt, output in zip(prompts, outputs, strict=True))
    found = LengthDistribution.of(Completed(50_000, sum(prompts), cached * sum(prompts), sum(outputs), pairs, reads))
    assert (found.prompt, found.output) == pytest.approx((2000, 300), rel=0.02)
    assert (found.prompt_cv, found.output_cv) == pytest.approx((0.8, 1.2), rel=0.1)
    assert found.cached == pytest.approx(0.25)


def test_requests_that_are_all_alike_have_no_spread() -> None:
    alike = Completed(10, 10_000, 0, 1_000, 10 * 500_000, 10 * 100 * 1050)
    assert LengthDistribution.of(alike) == LengthDistribution(1000, 100, 0.0, 0.0)


def test_admission_counts_answers_of_known_length_with_what_they_hold() -> None:
    assert LengthDistribution(1000, 200, 1.0, 0.0).peak_tokens() == 1100


def test_admission_reserves_nearly_the_answer_again_if_lengths_are_not_known() -> None:
    """500 + 1,000 tokens hold 1,500 on average, and could each still grow by as much again."""
    assert LengthDistribution(500, 1000, 1.0, 1.0).peak_tokens() == pytest.approx(2750, rel=0.03)


def test_the_quantile_is_the_engines() -> None:
    assert admission.QUANTILE == ADMITTED_QUANTILE


@given(prompt=st.floats(1, 1e5), output=st.floats(1, 1e4), cv=st.floats(0.05, 3))
def test_a_peak_is_never_below_what_running_sequences_hold_and_grows_with_the_prompt(
    prompt: float, output: float, cv: float
) -> None:
    peak = LengthDistribution(prompt, output, 1.0, cv).peak_tokens()
    assert peak >= prompt
    assert LengthDistribution(2 * prompt, output, 1.0, cv).peak_tokens() > peak


def test_no_prompt_is_longer_than_the_context() -> None:
    lengths = LengthDistribution(1000, 200, context=2000)
    assert lengths.prompt_quantile(0.99) == max(lengths.prompts()) == 2000

"""Comparing gateways round by round."""

from benchmarks.gateway.client import Tally
from benchmarks.gateway.contestant import spent_s
from benchmarks.gateway.rounds import Sample, Samples, Work, arrivals, ratios
from benchmarks.gateway.script import Script
from benchmarks.gateway.work import SHARED, bodies
from benchmarks.harness import Bar

WORK = Work("streamed", Script(), 2)


def sample(cpu_s: float, seconds: float = 1.0, errors: int = 0) -> Sample:
    """Two good answers."""
    return Sample(Tally(seconds, [0.1, 0.1], [0.2, 0.2], errors, ["broken"] * bool(errors)), cpu_s)


def test_ratios_are_taken_within_a_round_so_that_a_slow_round_of_the_machine_moves_none() -> None:
    samples = Samples(WORK, {"a": [sample(0.002), sample(0.2)], "b": [sample(0.001), sample(0.1)]})
    row = samples.ratio("CPU a request", "a", "b", lambda one: one.cpu_ms, Bar(1.5))
    assert (row.value, row.spread, row.passed) == (2.0, 0.0, False)
    assert row.name == "streamed: CPU a request, a over b"


def test_who_has_done_nothing_in_a_round_is_infinitely_slower() -> None:
    assert ratios([1.0], [0.0]) == [float("inf")]


def test_a_sample_counts_good_requests_alone() -> None:
    one = sample(0.004, seconds=0.5, errors=3)
    assert (one.per_s, one.cpu_ms, one.first_ms) == (4.0, 2.0, 100.0)


def test_one_failed_request_fails_a_row_that_says_whose_it_was() -> None:
    good, bad = Samples(WORK, {"a": [sample(1)]}), Samples(WORK, {"a": [sample(1)], "b": [sample(1, errors=1)]})
    assert good.errors().passed is True
    assert bad.errors().passed is False
    assert bad.errors().name == "streamed: requests failed, b"


def test_time_is_counted_by_thread_and_a_new_thread_begins_at_nothing() -> None:
    assert spent_s({(1, 1): 5_000_000_000, (1, 2): 7}, {(1, 1): 6_000_000_000, (1, 3): 500_000_000}) == 1.5


def test_arrivals_are_the_same_for_everybody_in_a_round_and_as_many_a_second_as_wanted() -> None:
    assert arrivals(40, 1000, 1) == arrivals(40, 1000, 1) != arrivals(40, 1000, 2)
    assert 20 < arrivals(40, 1000, 1)[-1] < 30


def test_prompts_share_a_beginning_and_nothing_else_and_have_their_size() -> None:
    first, second = bodies(2, 8192)
    assert bodies(2, 8192) == [first, second]
    assert 8192 < len(first) < 8192 + 300
    common = next(at for at, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
    assert SHARED < common < SHARED + 400

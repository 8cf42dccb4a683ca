"""The capacity that paths need, against queues worked out by hand."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline_autoscaler.model.demand_paths import DemandPaths, Path
from paceline_autoscaler.model.outlook import DemandOutlook, late_share, lead_bins, service_outlook
from paceline_autoscaler.model.work_history import BIN_S, WorkHistory, code_of


def path(*rates: float) -> Path:
    """Thirds of bins; the window begins with the fourth."""
    return Path(rates, max(rates))


STEADY = path(*[1.0] * 9)


def test_nothing_is_late_where_capacity_is_never_exceeded() -> None:
    assert late_share([STEADY], 1.0, 0.0) == 0.0


def test_what_waits_longer_than_its_slack_is_late() -> None:
    """A third of 2 on a capacity of 1: the queue grows to ten seconds' work, of which those of the second half wait
    more than 5 s; then it stays as long.
    """
    step = path(1.0, 1.0, 1.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0)
    assert late_share([step], 1.0, 10.0) == 0.0
    late = 20 * 0.5 + 5 * 10 + 5  # half of the step, all after it, and what is left beyond five seconds
    assert late_share([step], 1.0, 5.0) == pytest.approx(late / 70)


def test_a_queue_that_shrinks_is_late_until_it_is_short_enough() -> None:
    """A queue of 20 replica-s at the window's begin, which 2 replicas with work for one shorten by one a second."""
    shrinking = path(2.0, 2.0, 4.0, *[1.0] * 6)
    assert late_share([shrinking], 2.0, 5.0) == pytest.approx(10 / 60)


def test_the_warm_up_counts_only_by_the_queue_that_it_leaves() -> None:
    assert late_share([path(9.0, 0.0, 0.0, *[1.0] * 6)], 3.0, 2.0) == 0.0


def test_the_share_is_over_the_work_of_all_paths() -> None:
    flood = path(*[4.0] * 9)
    late = 240 + 90 - 3  # all of the window, and what it leaves but for a second's work
    assert late_share([flood, STEADY, STEADY], 3.0, 1.0) == pytest.approx(late / 360)
    assert late_share([flood], 1.0, 1.0) == 1.0
    assert late_share([path(*[0.0] * 9)], 1.0, 1.0) == 0.0


levels = st.lists(st.floats(0.1, 50.0), min_size=9, max_size=9).map(lambda rates: path(*rates))


@given(st.lists(levels, min_size=1, max_size=5), st.floats(0.5, 40), st.floats(1, 2), *[st.floats(0, 30)] * 2)
def test_more_capacity_or_time_never_makes_more_late(
    paths: list[Path], capacity: float, more: float, slack_s: float, time_s: float
) -> None:
    share = late_share(paths, capacity, slack_s)
    assert 0 <= share <= 1
    assert late_share(paths, capacity * more, slack_s) <= share + 1e-9
    assert late_share(paths, capacity, slack_s + time_s) <= share + 1e-9


def outlook(*rates: float, lead: int = 6) -> DemandOutlook:
    return DemandOutlook(DemandPaths([list(rates)], lead, 0.0))


def test_what_is_needed_keeps_late_work_within_the_share_and_no_more() -> None:
    rates = [2.0 if number % 20 < 10 else 8.0 for number in range(1000)]
    found = outlook(*rates)
    strict, loose = (found.at(2.0, 2.0, allowed).needed for allowed in (0.01, 0.5))
    assert strict == pytest.approx(8.0, rel=0.1)
    assert 2.0 < loose < strict
    assert found.at(2.0, 2.0, 0.01).p90 == pytest.approx(8.0, rel=0.1)


@settings(max_examples=50, deadline=None)
@given(st.floats(0.1, 100), st.floats(1.0, 2.0), st.floats(0.5, 20))
def test_a_higher_level_never_needs_less(level: float, more: float, slack_s: float) -> None:
    needed = [OUTLOOK.at(one, slack_s, 0.01).needed for one in (level, level * more)]
    assert needed[1] >= needed[0] * 0.8
    assert needed[0] >= 0


OUTLOOK = outlook(*[10 + (number * 7919 % 13) for number in range(400)])


def test_a_service_without_history_may_do_what_public_traces_did() -> None:
    """Whatever its level: they are scaled to it."""
    small, large = (service_outlook(WorkHistory(), 180.0, level, 2.0, 0.01) for level in (1.0, 10.0))
    assert large.needed == pytest.approx(10 * small.needed)
    assert 1.1 < small.needed < 2.0
    assert 0.8 < small.p50 < 1.2


def test_a_short_history_says_how_high_demand_is_usually() -> None:
    """Half of it is far below that: it will come back."""
    short = WorkHistory(codes=bytes([code_of(4.0)]) * 20, mean=4.0)
    assert service_outlook(short, 180.0, 2.0, 2.0, 0.01).needed > 4.0


def test_half_an_hour_of_its_own_replaces_them() -> None:
    """Demand that never moved needs no spare capacity."""
    known = WorkHistory(codes=bytes([code_of(4.0)]) * 60, mean=4.0)
    assert service_outlook(known, 180.0, 4.0, 2.0, 0.01).needed == pytest.approx(4.0, rel=0.05)


def test_a_lead_is_counted_in_bins_and_is_one_at_least() -> None:
    assert [lead_bins(seconds) for seconds in (0.0, 1.0, BIN_S, BIN_S + 1, 180.0)] == [1, 1, 1, 2, 6]

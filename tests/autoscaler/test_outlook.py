"""The capacity that demand may need, from histories whose answer is plain."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline_autoscaler.model.demand_paths import Path
from paceline_autoscaler.model.late_work import constant_capacity
from paceline_autoscaler.model.outlook import DemandOutlook, late_share, lead_bins, service_outlook
from paceline_autoscaler.model.work_history import BIN_S, MAX_BINS, WorkHistory, code_of


def path(*rates: float) -> Path:
    """Thirds of bins; the window begins with the fourth."""
    return Path(rates, max(rates))


STEADY = path(*[1.0] * 9)


def test_the_share_is_over_the_work_of_all_paths() -> None:
    flood = path(*[4.0] * 9)
    late = 60 * (1 + 3 / 9)  # what exceeds the capacity, less the ninth of it that goes to what is overdue
    assert late_share([flood, STEADY, STEADY], 3.0, 1.0) == pytest.approx(late / 360)
    assert late_share([flood], 0.0, 1.0) == 1.0
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


def outlook(*rates: float) -> DemandOutlook:
    return DemandOutlook(WorkHistory(codes=bytes(map(code_of, rates))), 6)


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


def test_the_longer_its_own_history_the_less_others_count() -> None:
    """Demand that has not moved for a week needs no spare capacity; half an hour of it has not seen much."""
    steady = [WorkHistory(codes=bytes([code_of(4.0)]) * bins, mean=4.0) for bins in (60, 240, 2880, MAX_BINS)]
    needed = [service_outlook(history, 180.0, 4.0, 2.0, 0.01).needed_after(4.0, 4.0) for history in steady]
    assert needed == sorted(needed, reverse=True)
    assert needed[0] > 4.0 * 1.15
    assert needed[-1] == pytest.approx(4.0, rel=0.05)


def test_others_add_nothing_to_a_history_that_needs_more() -> None:
    known = WorkHistory(codes=bytes(map(code_of, ([2.0] * 10 + [8.0] * 10) * 20)), mean=5.0)
    found = service_outlook(known, 180.0, 2.0, 2.0, 0.01)
    assert found.needed_after(2.0, 5.0) == replace(found, doubt=0.0).needed_after(2.0, 5.0)


def test_jumps_too_often_to_be_followed_need_the_constant_that_kept_up_with_them() -> None:
    """A bin of 8 in every eight: from a level that a jump has raised, demand might stay there, but never did."""
    jumps = outlook(*([1.0] * 7 + [8.0]) * 50)
    constant = constant_capacity(WorkHistory(codes=bytes(map(code_of, ([1.0] * 7 + [8.0]) * 50))), 30.0, 0.0025)
    assert max(jumps.at(level, 30.0, 0.01).needed for level in (1.0, 3.0, 4.5)) <= constant * 1.02


def test_demand_beyond_all_that_was_known_needs_more_than_the_constant() -> None:
    steady = outlook(*[4.0] * 100)
    assert steady.at(8.0, 2.0, 0.01).needed == pytest.approx(8.0, rel=0.1)


def test_a_lead_is_counted_in_bins_and_is_one_at_least() -> None:
    assert [lead_bins(seconds) for seconds in (0.0, 1.0, BIN_S, BIN_S + 1, 180.0)] == [1, 1, 1, 2, 6]


def test_a_service_that_was_always_idle_has_no_history_of_demand() -> None:
    """Nothing grows from nothing: what arrives then may do what public traces did."""
    idle = WorkHistory(codes=bytes([code_of(0.0)]) * 200)
    outlook = service_outlook(idle, 180.0, 3.0, 2.0, 0.01)
    assert outlook.needed_after(3.0, 0.5) >= 3.0


def test_a_service_that_was_nearly_idle_gets_what_it_demands() -> None:
    nearly = WorkHistory(codes=bytes([code_of(0.0), code_of(0.01)]) * 100, mean=0.005)
    assert service_outlook(nearly, 180.0, 3.0, 2.0, 0.01).needed_after(3.0, 0.5) >= 3.0


def test_a_service_that_is_hardly_known_needs_its_level_at_least() -> None:
    quiet = WorkHistory(codes=bytes([code_of(0.01)]) * 20, mean=0.01)
    assert service_outlook(quiet, 180.0, 3.0, 2.0, 0.01).needed >= 3.0


def test_bins_between_gaps_that_are_no_paths_are_no_history() -> None:
    torn = WorkHistory(codes=(bytes([code_of(4.0)]) * 3 + b"\0") * 30, mean=4.0)
    assert service_outlook(torn, 180.0, 4.0, 2.0, 0.01).needed >= 4.0


def test_starts_of_hours_are_planned_for_like_one_of_an_hour() -> None:
    known = WorkHistory(codes=bytes([code_of(4.0)]) * 60, mean=4.0)
    assert service_outlook(known, 10 * 3600.0, 4.0, 2.0, 0.01).needed >= 4.0
    assert lead_bins(10 * 3600.0) == lead_bins(3600.0) == 120

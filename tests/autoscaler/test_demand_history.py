"""Past demand: peaks of a window, the age of supply, and the derate that fades."""

from dataclasses import replace
from math import exp

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.autoscaler.factories import NOW

from paceline_autoscaler.model.demand_history import FEEDBACK, MIN_DERATE, BusySample, DemandHistory, DemandSample


def rising(history: DemandHistory, at: float, rate: float, window: float = 60.0) -> DemandHistory:
    return history.with_sample(DemandSample(at, rate, rate, 1, complete=True), window)


@given(st.lists(st.tuples(st.floats(0.1, 20), st.floats(0, 10)), min_size=1, max_size=80))
def test_the_peak_is_the_highest_rate_of_the_window_and_never_less(steps: list[tuple[float, float]]) -> None:
    history, now, past = DemandHistory("both"), NOW, []
    for pause, rate in steps:
        now += pause
        past.append((now, rate))
        history = rising(history, now, rate)
        highest = max(r for at, r in past if at >= now - 60)
        grace = max(r for at, r in past if at >= now - 62)
        assert highest <= history.peak <= grace
        assert len(history.peaks) <= 34


def test_supply_is_as_old_as_its_last_change() -> None:
    history = DemandHistory("both").with_sample(DemandSample(NOW, 1.0, 1.0, 2, complete=True), 60)
    history = history.with_sample(DemandSample(NOW + 50, 1.0, 1.0, 2, complete=True), 60)
    assert history.supply_since == NOW
    history = history.with_sample(DemandSample(NOW + 55, 1.0, 1.0, 3, complete=True), 60)
    assert history.supply_since == NOW + 55


def test_a_lesson_of_attainment_fades_over_hours() -> None:
    history = DemandHistory("both", derate=0.6, derate_at=NOW)
    assert rising(history, NOW + 60, 1.0).derate < 0.61
    assert 0.8 < rising(history, NOW + 2 * 3600, 1.0).derate < 0.9


def test_the_mean_moves_as_far_as_time_has_passed() -> None:
    history = rising(DemandHistory("both"), NOW, 2.0)
    assert history.mean == 2.0
    for second in range(300):
        history = rising(history, NOW + second + 1, 6.0)
    assert history.mean == pytest.approx(2 + 4 * (1 - exp(-1)))


def test_what_was_ordered_for_a_backlog_stays_the_peak_for_a_window() -> None:
    history = rising(DemandHistory("both"), NOW, 2.0).with_peak(NOW, 5.0, 60.0)
    assert rising(history, NOW + 50, 2.0).peak == 5.0
    assert rising(history, NOW + 70, 2.0).peak == 2.0


def measured(*steps: tuple[float, float, float] | None) -> DemandHistory:
    """After demand, backlog and modelled capacity, one each half minute; None where no work waits."""
    history = DemandHistory("both")
    for number, step in enumerate(steps):
        history = history.with_busy(NOW + 30 * number, None if step is None else BusySample(*step))
    return history


def test_what_is_done_while_work_waits_shows_the_capacity() -> None:
    """Of 5 replica-s/s, 120 replica-s in a minute have come to wait: 3 were done, where the model says 4."""
    assert measured((5.0, 60.0, 4.0), (5.0, 120.0, 4.0), (5.0, 180.0, 4.0)).derate == 1 - FEEDBACK * 0.25


def test_one_minute_says_little_and_ten_say_all() -> None:
    """Of 5 replica-s/s, 3 are done each minute, where the model says 4."""
    waits = [(5.0, 60.0 * number, 4.0) for number in range(21)]
    derates = [measured(*waits[: 1 + 2 * minutes]).derate for minutes in range(11)]
    assert derates == sorted(derates, reverse=True)
    assert derates[1] > 0.9
    assert derates[10] == pytest.approx(0.75, abs=0.02)


def test_a_backlog_of_less_than_a_minute_shows_nothing() -> None:
    assert measured((5.0, 60.0, 4.0), (5.0, 120.0, 4.0)).derate == 1.0
    assert measured((5.0, 60.0, 4.0), None, (5.0, 120.0, 4.0), (5.0, 180.0, 4.0)).derate == 1.0


def test_a_replica_that_has_become_ready_begins_the_minute_again() -> None:
    history = measured((5.0, 60.0, 4.0), (5.0, 120.0, 4.0))
    history = replace(history, supply_since=NOW + 45)
    assert history.with_busy(NOW + 60, BusySample(5.0, 180.0, 6.0)).derate == 1.0


def test_replicas_that_do_what_the_model_says_are_believed_again() -> None:
    slow = measured((5.0, 60.0, 4.0), (5.0, 120.0, 4.0), (5.0, 180.0, 4.0))
    again = slow.with_busy(NOW + 120, BusySample(4.0, 182.0, 4.0))
    assert again.derate == slow.derate + FEEDBACK * (1 - slow.derate)


@given(st.floats(0, 50), st.floats(0, 1000), st.floats(0, 1000), st.floats(0.5, 50))
def test_the_derate_stays_within_its_bounds(demand: float, before: float, after: float, capacity: float) -> None:
    history = DemandHistory("both").with_busy(NOW, BusySample(demand, before, capacity))
    assert MIN_DERATE <= history.with_busy(NOW + 90, BusySample(demand, after, capacity)).derate <= 1.0

"""Past demand: peaks of a window, the age of supply, and the derate that fades."""

from math import exp

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.autoscaler.factories import NOW

from paceline_autoscaler.model.demand_history import DemandHistory, DemandSample


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

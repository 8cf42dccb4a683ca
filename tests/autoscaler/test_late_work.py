"""Late work with a constant capacity, against what is worked out by hand and a search without short cuts."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline_autoscaler.model.late_work import constant_capacity, late_work, thirds
from paceline_autoscaler.model.work_history import RATES, WorkHistory, code_of


def test_nothing_is_late_where_capacity_is_never_exceeded() -> None:
    assert late_work([1.0] * 9, 1.0, 0.0) == 0.0


def test_what_exceeds_the_slack_is_late_once() -> None:
    """A third of 2 on a capacity of 1 leaves ten seconds' work."""
    assert late_work([2.0, 0.5, 0.5], 1.0, 10.0) == 0.0
    assert late_work([2.0, 0.5, 0.5], 1.0, 4.0) == pytest.approx(6)


def test_overdue_work_takes_a_ninth_of_the_capacity_until_it_is_done() -> None:
    """Then that much of what arrives, and would just be in time, is late instead."""
    assert late_work([2.0, *[1.0] * 5], 1.0, 4.0) == pytest.approx(6 + 5 * 10 / 9)
    assert late_work([1.3, 0.5, 1.0, 1.0], 1.0, 2.0) == pytest.approx(1)


def test_the_warm_up_is_never_late() -> None:
    assert late_work([9.0, 0.0, 0.0, *[1.0] * 6], 3.0, 2.0, warm_up=3) == 0.0
    assert late_work([9.0, 0.0, 0.0, *[1.0] * 6], 3.0, 2.0) == pytest.approx(54)


def test_the_thirds_of_a_bin_have_its_mean_and_dispersion() -> None:
    low, high, middle = thirds(4.0, 2, 0.25)
    assert (low + high + middle) / 3 == 4.0 == middle
    assert ((low - 4) ** 2 + (high - 4) ** 2) / 2 == pytest.approx(0.25 * 4.0 * 1.5)
    assert thirds(0.1, 0, 5.0) == pytest.approx((0.0, 0.1, 0.2))


histories = st.builds(
    WorkHistory,
    codes=st.lists(st.sampled_from([0, *map(code_of, (0.5, 1.0, 2.0, 5.0, 9.0))]), min_size=3, max_size=80)
    .filter(any)
    .map(bytes),
    variance=st.floats(0, 2),
    mean=st.just(2.0),
)


@settings(deadline=None)
@given(histories, st.floats(0.5, 20), st.sampled_from([0.001, 0.01, 0.1]))
def test_the_constant_is_the_least_that_keeps_late_work_within_the_share(
    history: WorkHistory, slack_s: float, allowed: float
) -> None:
    def late(capacity: float) -> float:
        """By all thirds of all bins."""
        segments = [
            [rate for turn, code in enumerate(part) for rate in thirds(RATES[code], turn % 3, history.dispersion)]
            for part in history.codes.split(b"\0")
        ]
        return sum(late_work(rates, capacity, slack_s) for rates in segments)

    most = allowed * sum(RATES[code] for code in history.codes) * 30
    found = constant_capacity(history, slack_s, allowed)
    assert late(found * 1.001) <= most * 1.001
    assert late(found * 0.99 - 0.05) > most * 0.999


def test_gaps_begin_with_an_empty_queue() -> None:
    busy, gap = bytes([code_of(4.0)]) * 4, b"\0"
    one = constant_capacity(WorkHistory(codes=busy * 2), 10.0, 0.1)
    assert constant_capacity(WorkHistory(codes=busy + gap + busy), 10.0, 0.1) < one

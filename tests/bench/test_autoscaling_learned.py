"""What our policy begins a scored window with, and what it ships with."""

import pytest
from benchmarks.autoscaling.learned import learned, library
from benchmarks.simulator.cells import TARGET

from paceline_autoscaler.model.demand_library import LIBRARY
from paceline_autoscaler.model.work_history import BIN_S, RATES
from paceline_simulator.cluster import EPOCH


def test_a_window_begins_after_all_that_was_learned() -> None:
    policy = learned("conv").policy(180.0)
    history = policy.knowledge.history("both")
    end = history.begin + len(history.codes) * BIN_S
    assert end <= EPOCH.timestamp()
    assert [(start.pool, start.seconds) for start in policy.state.learned.starts] == [(TARGET.pool, 180.0)]
    assert policy.state.own is None


def test_more_requests_than_were_learned_from_have_as_much_more_work() -> None:
    before, after = (learned("r1").policy(60.0, times=times).knowledge.history("both") for times in (1.0, 2.5))
    assert after.mean == pytest.approx(2.5 * before.mean)
    rates = [(RATES[one], RATES[other]) for one, other in zip(before.codes, after.codes, strict=True) if one]
    assert all(other == pytest.approx(2.5 * one, rel=0.06) for one, other in rates)


def test_the_library_is_that_of_what_was_learned() -> None:
    """After `learn`, `python -m benchmarks.autoscaling library` writes it."""
    assert library() == LIBRARY


def test_the_library_has_a_mean_of_one() -> None:
    known = [RATES[code] for code in LIBRARY.codes if code]
    assert sum(known) / len(known) == pytest.approx(1.0, abs=0.02)

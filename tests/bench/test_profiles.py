"""Arrival schedules."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline_cli.bench.profiles import LoadPhase, Profile, Spacing, burst, poisson, resolve_rate, schedule, steady
from paceline_core.errors import InvalidInput

rates = st.floats(0.1, 50)
durations = st.floats(0.5, 20)
phases = st.builds(LoadPhase, st.sampled_from(["before", "burst", "after"]), durations, rates)
profiles = st.builds(
    Profile,
    st.just("any"),
    st.lists(phases, min_size=1, max_size=4).map(tuple),
    st.integers(1, 8192),
    st.integers(1, 64),
    st.sampled_from(Spacing),
)


@given(profiles, st.integers(0, 2**32))
def test_a_schedule_is_ordered_numbered_and_inside_its_phases(profile: Profile, seed: int) -> None:
    arrivals = list(schedule(profile, seed))
    assert [arrival.number for arrival in arrivals] == list(range(len(arrivals)))
    assert [arrival.at for arrival in arrivals] == sorted(arrival.at for arrival in arrivals)
    assert all(0 <= arrival.at < profile.duration + 1e-9 for arrival in arrivals)


@given(profiles, st.integers(0, 2**32))
def test_the_same_seed_gives_the_same_schedule(profile: Profile, seed: int) -> None:
    assert list(schedule(profile, seed)) == list(schedule(profile, seed))


def test_another_seed_gives_another_schedule() -> None:
    profile = poisson(5, 10, 100, 10)
    assert list(schedule(profile, 1)) != list(schedule(profile, 2))


@pytest.mark.parametrize("rate", [2.0, 20.0])
def test_poisson_gaps_have_the_mean_and_the_spread_of_the_exponential(rate: float) -> None:
    times = [arrival.at for arrival in schedule(poisson(rate, 4000 / rate, 1, 1), seed=7)]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    mean = sum(gaps) / len(gaps)
    deviation = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps))
    assert mean == pytest.approx(1 / rate, rel=0.05)
    assert deviation == pytest.approx(1 / rate, rel=0.08)


def test_steady_arrivals_are_evenly_spaced() -> None:
    assert [arrival.at for arrival in schedule(steady(4, 1, 10, 10), seed=0)] == [0.0, 0.25, 0.5, 0.75]


def test_a_burst_offers_more_in_its_middle_phase() -> None:
    arrivals = list(schedule(burst(2, 20, (50, 50, 50), 4096, 32), seed=3))
    count = {name: sum(a.phase == name for a in arrivals) for name in ("before", "burst", "after")}
    assert count["burst"] == pytest.approx(1000, rel=0.15)
    assert count["before"] == pytest.approx(100, rel=0.4)
    assert count["after"] == pytest.approx(100, rel=0.4)
    assert all(50 <= a.at < 100 for a in arrivals if a.phase == "burst")


@pytest.mark.parametrize(("text", "rate"), [("12", 12.0), ("6x", 15.0), ("1.5x", 3.75)])
def test_a_burst_rate_is_absolute_or_a_multiple(text: str, rate: float) -> None:
    assert resolve_rate(text, base=2.5) == rate


@pytest.mark.parametrize("text", ["", "x", "fast", "6y"])
def test_an_unreadable_rate_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="burst-rate"):
        resolve_rate(text, base=1)


@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan, math.inf])
def test_a_rate_that_is_no_positive_number_is_refused(rate: float) -> None:
    with pytest.raises(InvalidInput, match="rate"):
        poisson(rate, 10, 1, 1)


def test_an_absurd_number_of_requests_is_refused() -> None:
    with pytest.raises(InvalidInput, match="lower it"):
        poisson(1e6, 1e6, 1, 1)

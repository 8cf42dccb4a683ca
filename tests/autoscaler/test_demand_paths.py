"""Paths go on as history did from the same level; where it has none, they move with the level."""

from math import exp, log
from random import Random
from statistics import mean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline_autoscaler.model.demand_paths import PATHS, WARM_UP, DemandPaths, Path


def windows(paths: list[Path]) -> list[float]:
    return [path.window for path in paths]


def walk(step: float, pull: float, bins: int = 4000, seed: int = 1) -> list[float]:
    """A rate around 10 whose logarithm moves by `step`, and returns to its mean by `pull` of the difference."""
    random, level, rates = Random(seed), 0.0, []
    for _ in range(bins):
        level += random.gauss(0.0, step) - pull * level
        rates.append(10 * exp(level))
    return rates


def test_where_demand_never_changed_it_stays() -> None:
    paths = DemandPaths([[5.0] * 50], 6, 0.0).of(5.0)
    assert len(paths) == PATHS
    assert {path.rates for path in paths} == {(5.0,) * 9}


def test_without_history_there_are_no_paths() -> None:
    assert DemandPaths([], 6, 0.0).of(5.0) == []
    assert len(DemandPaths([[5.0] * 9], 6, 0.0)) == 0


def test_the_share_of_paths_that_rise_is_that_of_history() -> None:
    """A square wave of ten bins low and ten high: of nine places in a low stretch, one is still low in seven bins."""
    rates = [2.0 if number % 20 < 10 else 8.0 for number in range(1000)]
    low = windows(DemandPaths([rates], 6, 0.0).of(2.0))
    assert {round(window) for window in low} <= {2, 5, 8}
    assert mean(window > 4 for window in low) == pytest.approx(8 / 9, abs=0.02)
    high = windows(DemandPaths([rates], 1, 0.0).of(8.0))
    assert mean(window < 8 for window in high) == pytest.approx(3 / 9, abs=0.02)


def test_demand_that_returns_to_its_mean_is_expected_to() -> None:
    returning = DemandPaths([walk(0.2, 0.5)], 6, 0.0)
    assert mean(windows(returning.of(14.0))) == pytest.approx(10.3, rel=0.1)
    staying = DemandPaths([walk(0.02, 0.001)], 6, 0.0)
    assert mean(windows(staying.of(14.0))) == pytest.approx(14.0, rel=0.1)


@pytest.mark.parametrize("factor", [3.0, 0.2])
def test_beyond_the_levels_of_history_paths_move_with_the_level(factor: float) -> None:
    rates = walk(0.1, 0.1)
    paths, edge = DemandPaths([rates], 6, 0.0), (max(rates) if factor > 1 else min(rates))
    near, far = (mean(windows(paths.of(level))) for level in (edge, edge * factor))
    assert far / near == pytest.approx(factor, rel=1e-6)


def test_thirds_of_a_bin_differ_by_the_dispersion_around_the_same_mean() -> None:
    paths = DemandPaths([[4.0] * 50], 6, 1.0).of(4.0)
    for path in paths:
        assert mean(path.rates[WARM_UP:]) == pytest.approx(4.0)
        assert path.peak == pytest.approx(4.0 + 4.0 * (1.5 / 4.0) ** 0.5)
    assert {path.rates.index(max(path.rates)) for path in paths} == {0, 1, 2}


def test_gaps_are_no_part_of_a_path() -> None:
    assert len(DemandPaths([[1.0] * 12, [9.0] * 12], 4, 0.0)) == 2 * (12 - 2 - 3 - 2)
    assert set(windows(DemandPaths([[1.0] * 12, [9.0] * 12], 4, 0.0).of(1.0))) == {1.0}


rates = st.lists(st.floats(0.0, 100.0), min_size=12, max_size=60)


@settings(max_examples=50, deadline=None)
@given(rates, st.floats(0.0, 200.0), st.integers(1, 8), st.floats(0.0, 5.0))
def test_paths_are_finite_never_negative_and_the_same_each_time(
    history: list[float], level: float, lead: int, dispersion: float
) -> None:
    found = [DemandPaths([history], lead, dispersion).of(level) for _ in range(2)]
    assert found[0] == found[1]
    for path in found[0]:
        assert all(0 <= rate < 1e9 for rate in path.rates)
        assert path.peak == max(path.rates)


def test_anchors_nearer_to_the_level_count_more() -> None:
    """A rate that doubles every 40 bins: from 8 on, paths that begin far from it are rare."""
    rising = [2 ** (number / 40) for number in range(400)]
    found = windows(DemandPaths([rising], 6, 0.0).of(8.0))
    spread = [abs(log(window / mean(found))) for window in found]
    assert max(spread) < 0.3
    assert mean(found) == pytest.approx(8.0 * 2 ** (7.5 / 40), rel=0.05)

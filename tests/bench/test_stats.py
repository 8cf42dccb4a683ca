"""Percentiles and histogram bounds."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline_cli.bench.report import Spread, percentile, spread

numbers = st.lists(st.floats(0, 1e6), min_size=1, max_size=50)


@given(numbers, st.floats(0, 1))
def test_a_percentile_lies_between_its_neighbours(values: list[float], q: float) -> None:
    ordered = sorted(values)
    low = ordered[math.floor(q * (len(ordered) - 1))]
    high = ordered[math.ceil(q * (len(ordered) - 1))]
    assert low <= percentile(ordered, q) <= high + 1e-9


def test_percentiles_are_interpolated_linearly_between_ranks() -> None:
    assert percentile([0.0, 10.0], 0.95) == pytest.approx(9.5)
    assert percentile([1.0, 2.0, 3.0, 4.0, 5.0], 0.5) == 3.0
    assert percentile([7.0], 0.99) == 7.0


def test_a_spread_states_its_count() -> None:
    assert spread([]) == Spread(0)
    some = spread([3.0, 1.0, 2.0])
    assert (some.n, some.mean, some.p50, some.max) == (3, 2.0, 2.0, 3.0)

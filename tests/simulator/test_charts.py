"""Axes end at round numbers, steps hold their values, and no label covers another one."""

import re
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from paceline_simulator.charts import Axis, Chart, clock, number_axis, time_axis

UNIT = Axis(0.0, 1.0, ())


@given(st.floats(1e-6, 1e9), st.integers(1, 8))
def test_an_axis_covers_its_values_with_few_round_ticks(highest: float, most: int) -> None:
    axis = number_axis(highest, most)
    assert axis.high >= highest * (1 - 1e-6)
    assert 2 <= len(axis.ticks) <= most + 1
    assert axis.ticks[1][1].strip("0.e+-")[:1] in ("1", "2", "5")


@given(st.floats(1.0, 1e6))
def test_a_time_axis_has_ticks_within_the_time(end: float) -> None:
    axis = time_axis(end)
    assert all(0 <= value <= end for value, _ in axis.ticks)
    assert axis.high == end


def test_times_read_as_on_a_clock() -> None:
    assert [clock(seconds) for seconds in (0, 65, 3600, 3725)] == ["0:00", "1:05", "1:00:00", "1:02:05"]


def test_steps_hold_until_the_next_value_and_areas_close() -> None:
    chart = Chart(UNIT, UNIT)
    chart.steps([(0.0, 0.0), (0.5, 1.0)], "queue", end=1.0)
    chart.area([(0.0, 0.0)], [(0.0, 1.0)], "ready", end=0.5)
    text = chart.html("tall", "queue")
    assert 'd="M0.0 300.0L500.0 300.0L500.0 0.0L1000.0 0.0"' in text
    assert 'd="M0.0 0.0L500.0 0.0L500.0 300.0L0.0 300.0Z"' in text


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=8))
def test_no_label_covers_another(points: list[tuple[float, float]]) -> None:
    chart = Chart(UNIT, UNIT)
    chart.labels((point, "policy", "") for point in points)
    found = re.findall(r'class="label (\w+) " style="left:([\d.]+)%;top:([\d.]+)%"', chart.html("frontier", ""))
    assert len(found) == len(points)
    width = 2.2 * 8
    boxes = [(float(left) - width * (side == "before"), float(top)) for side, left, top in found]
    for (left, top), (other, height) in combinations(boxes, 2):
        assert abs(left - other) >= width - 0.2 or abs(top - height) >= 7.0 - 0.2


def test_texts_are_escaped() -> None:
    chart = Chart(UNIT, UNIT)
    chart.labels([((0.0, 0.0), "<b>", "")])
    assert ">&lt;b&gt;</span>" in chart.html("tall", "x")

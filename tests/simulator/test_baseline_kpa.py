"""Knative's pod autoscaler against its source, knative/serving 98e5ef9, pkg/autoscaler."""

from dataclasses import replace
from itertools import pairwise
from math import ceil

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.autoscaler.factories import NOW, view
from tests.simulator.rivals import differences, follow, seen

from paceline_autoscaler.types import Demand
from paceline_simulator.baselines.kpa import Buckets, Kpa, KpaState


def of(target: float, **changes: float) -> Kpa:
    """As newTestAutoscaler of autoscaler_test.go: rates of 10."""
    made = Kpa(concurrency=target, utilization=1.0, max_scale_up_rate=10.0, max_scale_down_rate=10.0)
    return replace(made, **changes)


FRESH = KpaState(started=True)
PANIC = replace(FRESH, panic_at=-5.0, panic_replicas=5)
SCALES: list[tuple[str, Kpa, KpaState, list[tuple[float, int, float, float, int]]]] = [
    # autoscaler, state, (seconds, ready, stable, panic, replicas) in turn; tests of autoscaler_test.go by name
    ("StableModeIncreaseWithConcurrencyDefault", of(10), FRESH, [(0, 1, 50, 10, 5), (0, 1, 100, 10, 10)]),
    (
        "UnpanicAfterSlowIncrease",
        of(1),
        FRESH,
        [(0, 10, 11, 25, 25), (30, 40, 30, 41, 41), (62, 55, 50, 56, 50)],
    ),
    ("ExtendPanicWindow", of(1), FRESH, [(0, 10, 11, 25, 25), (30, 40, 30, 80, 80)]),
    ("StableModeDecrease", of(10), FRESH, [(0, 8, 100, 100, 10), (0, 8, 50, 50, 5)]),
    ("StableModeNoTrafficScaleToZero", of(10), FRESH, [(0, 1, 1, 0, 1), (0, 1, 0, 0, 0)]),
    (
        "PanicModeExponentialTrackAndStabilize",
        of(1),
        FRESH,
        [(0, 1, 6, 6, 6), (0, 6, 36, 36, 36), (1, 36, 216, 216, 216), (1, 216, 1296, 1296, 1296)],
    ),
    ("NoDataAtZeroNoAutoscale", of(10), FRESH, [(0, 1, 0, 0, 0)]),
    ("StableModeUnlimitedTBC", of(181), FRESH, [(0, 1, 21, 26, 1)]),
    ("0TBC", of(10), FRESH, [(0, 1, 50, 49, 5)]),
    ("PanicStableLargerThanPanic", of(1), PANIC, [(0, 5, 50, 30, 50)]),
    ("PanicStableLessThanPanic", of(1), PANIC, [(0, 5, 20, 30, 30)]),
    ("StableModeNoChangeAlreadyScaled", of(10), FRESH, [(0, 5, 50, 50, 5)]),
    ("StableModeIncreaseWithSmallScaleUpRate", of(1, max_scale_up_rate=1.1), FRESH, [(0, 2, 3, 3.1, 3)]),
    ("StableModeDecreaseWithSmallScaleDownRate", of(10, max_scale_down_rate=1.1), FRESH, [(0, 100, 1, 1, 90)]),
    ("PanicModeDoublePodCount", of(10), FRESH, [(0, 1, 50, 100, 10)]),
    (
        "PanicThenUnPanicScaleDown",
        of(10),
        FRESH,
        [(0, 1, 100, 100, 10), (0, 10, 100, 1000, 100), (30, 10, 1, 1, 100), (61, 10, 1, 1, 1)],
    ),
    ("RateLimitScaleUp", of(10), FRESH, [(0, 1, 1000, 1001, 10), (0, 10, 1000, 1001, 100)]),
    ("RateLimitScaleDown", of(10), FRESH, [(0, 100, 1, 1, 10), (0, 10, 1, 1, 1)]),
    ("UseOnePodAsMinimumIfEndpointsNotFound", of(10), FRESH, [(0, 0, 1000, 888, 10)]),
    (
        "ScaleDownDelay",
        of(10, panic_threshold=100, scale_down_delay_s=300),
        FRESH,
        [(2, 0, 40, 40, 4), (300, 0, 0, 0, 4), (302, 0, 0, 0, 0)],
    ),
    (
        "ScaleDownDelay, gradual",
        of(10, panic_threshold=100, scale_down_delay_s=300),
        FRESH,
        [(540, 0, 40, 40, 4), (600, 0, 30, 30, 4), (660, 0, 0, 0, 4), (840, 0, 0, 0, 3), (900, 0, 0, 0, 0)],
    ),
]
AVERAGES = [
    # second, value or None to read alone, average of five buckets; TestTimedFloat64BucketsWindowAverage
    (0, 1, 1.0),
    (1, 2, 1.5),
    (2, 3, 2.0),
    (3, 4, 2.5),
    (4, 5, 3.0),
    (6, None, 4.0),
    (10, None, 0.0),
    (6, 91, 20.6),
    (66, 1984, 1984.0),
]


def test_each_test_of_the_source_gives_its_replicas() -> None:
    wrong = []
    for name, kpa, began, steps in SCALES:
        state = began
        for step, (at, ready, stable, panic, expected) in enumerate(steps):
            wanted, state = kpa.scale((stable, panic), ready, at, state)
            if wanted != expected:
                wrong.append((name, step, wanted, expected))
    assert wrong == []


def test_windows_average_as_in_the_source() -> None:
    buckets, averages = Buckets(), []
    for second, value, _ in AVERAGES:
        if value is not None:
            buckets = buckets.record(second, value, 5)
        averages.append(buckets.average(second, 5))
    assert differences(averages, [row[-1] for row in AVERAGES]) == []


def test_a_new_autoscaler_that_finds_several_replicas_begins_in_panic() -> None:
    for ready, panic_at in [(0, None), (1, None), (2, NOW)]:
        counts, state = Kpa().decide(seen(view(ready)), KpaState())
        assert (counts["main"], state.panic_at, state.panic_replicas) == (2 * (ready > 1), panic_at, ready)


def test_without_data_for_a_window_nothing_changes() -> None:
    silent = Demand(1, 0)
    assert Kpa().decide(seen(view(3), demand=silent), KpaState())[0] == {"main": 3}
    _, state = Kpa().decide(seen(view(3), running=700), KpaState())
    assert Kpa().decide(seen(view(3), 40, demand=silent), state)[0] == {"main": 10}
    assert Kpa().decide(seen(view(3), 64, demand=silent), state)[0] == {"main": 3}


@settings(max_examples=20)
@given(st.lists(st.integers(0, 4000), min_size=1, max_size=20), st.floats(1.1, 10))
def test_growth_stays_within_the_rates_and_a_flat_input_settles(loads: list[int], rate: float) -> None:
    loads += [loads[-1]] * 70
    kpa = Kpa(max_scale_up_rate=rate)
    ordered = follow(kpa, lambda at, n: seen(view(n), at, running=loads[round(at / 2)]), len(loads), most=80)
    assert all(b <= ceil(rate * a) for a, b in pairwise(ordered))
    assert ordered[-1] == min(max(-(-loads[-1] // 70), 1), 80)

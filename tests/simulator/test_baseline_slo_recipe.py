"""llm-d's SLO-aware recipe against its guide, README.slo-aware.md of llm-d d38c9f0c."""

from dataclasses import replace
from math import fsum

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.autoscaler.factories import INTERACTIVE, goal, view
from tests.simulator.rivals import differences, follow, seen

from paceline_autoscaler.model.series import mean
from paceline_autoscaler.types import MeasuredLatency, Observation, SloTarget
from paceline_simulator.baselines.slo_recipe import SloRecipe, saturation

FORMULA = [
    # smoothed saturation, ordered, ready, replicas; the guide's formula by hand
    (0.40, 4, 4, 4),
    (0.55, 4, 4, 4),
    (0.56, 4, 4, 5),
    (2.00, 3, 3, 11),
    (1.20, 6, 3, 7),
    (1.20, 3, 0, 7),
    (0.90, 8, 2, 4),
    (0.39, 10, 10, 10),
    (0.30, 10, 10, 8),
    (0.30, 10, 4, 8),
    (0.20, 3, 3, 2),
    (0.00, 5, 5, 0),
]
TARGETS = (SloTarget(INTERACTIVE, "ttft", 0.9, 3.0), SloTarget(INTERACTIVE, "tpot", 0.9, 0.1))


def slow(observation: Observation, ttft: float, tpot: float = 0.002) -> Observation:
    latencies = (MeasuredLatency(INTERACTIVE, "ttft", 0.9, ttft), MeasuredLatency(INTERACTIVE, "tpot", 0.9, tpot))
    return replace(observation, goal=goal(targets=TARGETS), latencies=latencies)


def test_the_formula_gives_the_replicas_of_the_guide() -> None:
    assert differences([SloRecipe().formula(s, n, r) for s, n, r, _ in FORMULA], [row[-1] for row in FORMULA]) == []


def test_saturation_is_the_worst_ratio_of_a_latency_to_its_own_target() -> None:
    assert saturation(slow(seen(view(1)), ttft=1.5)) == 0.5
    assert saturation(slow(seen(view(1)), ttft=1.5, tpot=0.09)) == 0.09 / 0.1
    other = (MeasuredLatency(INTERACTIVE, "ttft", 0.5, 99.0),)
    assert saturation(replace(slow(seen(view(1)), 1.0), latencies=other)) == 0.0
    assert saturation(seen(view(1))) == 0.0


def test_a_sample_is_capped_and_averaged_over_the_last_three() -> None:
    recipe = SloRecipe()
    state = recipe.initial_state()
    for step, ttft in enumerate([30.0, 300.0, 0.3, 0.6]):
        _, state = recipe.decide(slow(seen(view(3), step * 15), ttft), state)
    assert [point.value for point in state.samples] == [2.0, 0.3 / 3, 0.6 / 3]
    assert mean(state.samples) == fsum((2.0, 0.3 / 3, 0.6 / 3)) / 3


def test_up_waits_two_syncs_for_its_window_and_down_takes_one_replica_in_two_minutes() -> None:
    latency = [1.5] * 2 + [9.0] * 6 + [0.1] * 26
    recipe = SloRecipe()
    ordered = follow(recipe, lambda at, n: slow(seen(view(n), at), latency[round(at / 15)]), 34, replicas=3, most=8)
    assert ordered == [3, 3, 3, 6, 7, 7, 7] + [8] * 14 + [7] * 8 + [6] * 5


@settings(max_examples=20)
@given(st.lists(st.floats(0, 60), min_size=1, max_size=20), st.floats(0.3, 1.0))
def test_growth_stays_within_the_policies_and_the_dead_band_holds(latencies: list[float], band: float) -> None:
    recipe = SloRecipe(up=band, down=band / 2)
    latencies += [band * 3.0 * 0.75] * 20
    ordered = follow(recipe, lambda at, n: slow(seen(view(n), at), latencies[round(at / 15)]), len(latencies))
    assert all(b <= max(2 * a, a + 4) for a, b in zip([2, *ordered], ordered, strict=False))
    assert len(set(ordered[-3:])) == 1

"""KEDA by llm-d's recipe against its sources: kedacore/keda 8b4f083 and llm-d b0d6a794."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.autoscaler.factories import NOW, goal, pool, view
from tests.simulator.rivals import differences, follow, seen

from paceline_autoscaler.types import Demand
from paceline_simulator.baselines.keda import Keda, KedaState, keda

REQUEST_SCALE = [
    # replicas, minimum, active, replicas after; tests of scale_scaledobjects_test.go: ToMinReplicasWhenNotActive,
    # ToMinReplicasFromLowerInitialReplicaCount, FromMinReplicasWhenActive; the last two from RequestScale's cases
    (10, 0, False, 0),
    (1, 5, False, 5),
    (0, 0, True, 1),
    (0, 5, True, 5),
    (0, 0, False, 0),
]
THRESHOLDS = [
    # queued, running, existing replicas, wanted; README of keda-epp: each threshold is a target a replica, the largest
    # proposal counts, and the HPA's tolerance of a tenth holds
    (0, 32, 2, 2),
    (0, 35, 2, 2),
    (0, 36, 2, 3),
    (3, 16, 2, 3),
    (9, 16, 2, 4),
    (0, 0, 1, 1),
]


def test_keda_scales_near_zero_as_its_tests_say() -> None:
    after = []
    for replicas, minimum, active, _ in REQUEST_SCALE:
        spec = goal(pools=(pool(min=minimum),))
        counts, _ = Keda().decide(seen(view(replicas), running=int(active), goal=spec), KedaState())
        after.append(counts["main"])
    assert differences(after, [row[-1] for row in REQUEST_SCALE]) == []


def test_the_two_thresholds_are_targets_a_replica() -> None:
    wanted = [Keda().decide(seen(view(n), 0, q, r), KedaState())[0]["main"] for q, r, n, _ in THRESHOLDS]
    assert differences(wanted, [row[-1] for row in THRESHOLDS]) == []


def test_a_pool_of_minimum_zero_goes_to_zero_after_the_cooldown() -> None:
    spec = goal(pools=(pool(min=0),))
    _, state = Keda().decide(seen(view(2), 0, running=3, goal=spec), KedaState())
    counts, state = Keda().decide(seen(view(1), 300, goal=spec), state)
    assert (counts, state.last_active) == ({"main": 1}, NOW)
    assert Keda().decide(seen(view(1), 315, goal=spec), state)[0] == {"main": 0}


def test_without_gateways_the_queries_are_empty_and_count_as_no_requests() -> None:
    silent = replace(seen(view(4), 0, queued=90, running=90), demand=Demand(2, 0))
    counts, state = Keda().decide(silent, KedaState())
    assert (counts, state.last_active) == ({"main": 4}, None)
    assert [point.value for point in state.history.recommendations] == [4, 0]


@settings(max_examples=20)
@given(st.lists(st.integers(0, 300), min_size=1, max_size=20), st.integers(1, 40))
def test_it_doubles_at_most_and_settles_on_a_flat_input(queues: list[int], threshold: int) -> None:
    queues += [queues[-1]] * 30
    scaler = keda(threshold, 1000)
    ordered = follow(scaler, lambda at, n: seen(view(n), at, queued=queues[round(at / 15)], running=1), len(queues))
    assert all(b <= max(2 * a, 1) for a, b in zip([2, *ordered], ordered, strict=False))
    assert len(set(ordered[-3:])) == 1

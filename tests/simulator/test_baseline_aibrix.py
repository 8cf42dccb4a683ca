"""AIBrix's PodAutoscaler against its source, vllm-project/aibrix e3e10f9, pkg/controller/podautoscaler."""

from itertools import pairwise
from math import ceil

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.autoscaler.factories import NOW, view
from tests.simulator.rivals import differences, follow, loaded, seen

from paceline_autoscaler.model.series import TimedValue
from paceline_simulator.baselines.aibrix import Aibrix, AibrixHistory

APA = [
    # replicas, use, rates for up and down, replicas; TestAPAAlgorithm_ComputeTargetReplicas with target 30
    (2, 45, 2, 2, 3),
    (2, 35, 2, 2, 3),
    (2, 90, 2, 2, 4),
    (2, 90, 2.5, 2, 5),
    (6, 20, 2, 2, 4),
    (6, 18, 2, 2, 4),
    (6, 10, 2, 2, 3),
    (6, 5, 2, 2.5, 2),
    (2, 33, 2, 2, 2),
    (2, 27, 2, 2, 2),
]
KPA = [
    # replicas, stable, panic, rate for up, replicas; TestKPAAlgorithm_ComputeTargetReplicas with target 10 and no
    # tolerance, cases whose panic maximum and activation scale the controller can set
    (2, 20, 20, 2.0, 2),
    (1, 0, 0, 2.0, 0),
    (2, 100, 100, 1.5, 3),
    (4, 5, 5, 2.0, 2),
]


def test_apa_gives_the_replicas_of_the_source() -> None:
    made = [
        Aibrix(target=30.0, max_scale_up_rate=up, max_scale_down_rate=down).apa(use, replicas)
        for replicas, use, up, down, _ in APA
    ]
    assert differences(made, [row[-1] for row in APA]) == []


def test_kpa_gives_the_replicas_of_the_source() -> None:
    made = [
        Aibrix("KPA", target=10.0, up_tolerance=0, down_tolerance=0, max_scale_up_rate=up).kpa(stable, panic, replicas)
        for replicas, stable, panic, up, _ in KPA
    ]
    assert differences(made, [row[-1] for row in KPA]) == []


def test_in_panic_the_larger_window_counts() -> None:
    kpa = Aibrix("KPA", target=10.0)
    assert kpa.kpa(15, 40, 2) == 4
    assert kpa.kpa(20, 40, 2) == 2


def test_kpa_divides_a_mean_without_multiplying_by_the_pods() -> None:
    assert Aibrix("KPA").kpa(0.9, 0.9, 8) == 4
    assert Aibrix("APA").apa(0.9, 8) == 15


def test_the_cooldown_for_down_takes_the_lowest_recommendation_and_the_intended_one_the_highest() -> None:
    past = (TimedValue(NOW - 300, 1), TimedValue(NOW - 200, 2), TimedValue(NOW - 100, 5), TimedValue(NOW, 4))
    assert Aibrix().stabilized(past, 4, 6, NOW) == 2
    assert Aibrix(intended=True).stabilized(past, 4, 6, NOW) == 5
    assert Aibrix().stabilized(past, 4, 4, NOW) == 4
    assert Aibrix().stabilized(past, 4, 3, NOW) == 4
    assert Aibrix(up_cooldown_s=150).stabilized(past, 4, 3, NOW) == 5


def test_windows_hold_the_mean_over_pods_until_they_are_older_than_the_window() -> None:
    apa = Aibrix(stable_window_s=20.0)
    state = apa.initial_state()
    for step, kv in enumerate([0.4, 0.6, 0.5, 0.5]):
        _, state = apa.decide(seen(loaded(2, kv_used=kv), step * 10), state)
    assert [point.value for point in state.pools["main"].values] == [0.6, 0.5, 0.5]


def test_without_values_nothing_changes() -> None:
    apa = Aibrix()
    counts, state = apa.decide(seen(view(3, loads=())), apa.initial_state())
    assert (counts, state.pools["main"]) == ({"main": 3}, AibrixHistory())


@settings(max_examples=20)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_a_decision_doubles_at_most_and_a_use_at_the_target_settles(uses: list[float]) -> None:
    uses += [0.5] * 60
    ordered = follow(Aibrix(), lambda at, n: seen(loaded(n, kv_used=uses[round(at / 10)]), at), len(uses))
    assert all(b <= ceil(2 * a) for a, b in pairwise([2, *ordered]))
    assert len(set(ordered[-5:])) == 1

"""The HorizontalPodAutoscaler against its source, kubernetes v1.36.3, pkg/controller/podautoscaler."""

from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.autoscaler.factories import NOW, load, view
from tests.simulator.rivals import differences, follow, loaded, seen, series

from paceline_autoscaler.model.series import TimedValue
from paceline_autoscaler.types import Demand, Observation, PoolStatus
from paceline_core.errors import InvalidInput
from paceline_simulator.baselines.hpa import ExternalMetric, Hpa, PodsMetric, hpa_concurrency, hpa_kv, hpa_queue
from paceline_simulator.baselines.hpa_behavior import (
    DEFAULT_BEHAVIOR,
    Behavior,
    RatePolicy,
    ScaleHistory,
    ScalingRules,
    observe_order,
    rate_limited,
    stabilized,
)
from paceline_simulator.baselines.hpa_replicas import (
    DEFAULT_TOLERANCE,
    PodMetrics,
    Tolerance,
    average_value_replicas,
    group_pods,
    pods_metric_replicas,
)

DEFAULT = DEFAULT_TOLERANCE
FINE = Tolerance(up=0.01, down=0.1)

PODS_TABLE = [
    # values of pods, target, current replicas, tolerance, replicas; the tests of replica_calculator_test.go whose name
    # ends in CM, and TestPlainMetricReplicaCalcMissingMetricsNoChangeEq
    (PodMetrics((20000, 10000, 30000), 3), 15000, 3, DEFAULT, 4),
    (PodMetrics((50000, 10000, 30000), 3), 15000, 3, DEFAULT, 6),
    (PodMetrics((50000, 15000, 30000), 3), 15000, 3, DEFAULT, 7),
    (PodMetrics((12000,) * 5, 5), 20000, 5, DEFAULT, 3),
    (PodMetrics((20000, 21000, 21000), 3), 20000, 3, DEFAULT, 3),
    (PodMetrics((20000, 21000, 21000), 3), 20000, 3, FINE, 4),
    (PodMetrics((20000, 19000, 21000), 3, missing=2), 20000, 5, DEFAULT, 5),
    (PodMetrics((10000, 10000), 2, missing=1), 17000, 2, DEFAULT, 2),
]
PODS_RUN = [
    # values of pods, missing, unready, target, current, replicas; calcPlainMetricReplicas run on random pods
    ((1626, 1698), 0, 0, 700, 2, 5),
    ((61, 71, 61), 1, 0, 333, 4, 2),
    ((344,), 1, 1, 333, 3, 3),
    ((426, 465), 2, 3, 333, 7, 7),
    ((339, 336, 313, 291), 0, 0, 333, 4, 4),
    ((921,), 1, 0, 700, 2, 2),
    ((1094, 941), 2, 0, 5000, 4, 3),
    ((71, 67, 71, 68), 4, 0, 333, 8, 5),
    ((336, 308, 318), 1, 1, 333, 5, 5),
    ((333, 333, 333), 2, 0, 333, 5, 5),
    ((5146, 4322, 4639, 4758), 1, 0, 5000, 5, 5),
    ((333, 333, 333), 4, 0, 333, 7, 7),
    ((3338,), 0, 3, 5000, 4, 1),
    ((446, 435), 4, 0, 333, 6, 6),
    ((346, 368), 1, 3, 333, 6, 6),
    ((913, 982, 1023), 4, 0, 5000, 7, 5),
    ((131, 153), 0, 3, 700, 5, 1),
    ((1012, 1097, 992, 1040, 946), 0, 3, 5000, 8, 2),
    ((3354, 3830, 3378), 0, 3, 5000, 6, 3),
    ((6276, 6579), 4, 0, 5000, 6, 6),
    ((5000, 5000, 5000, 5000), 0, 0, 5000, 4, 4),
    ((788, 817, 753, 833), 0, 1, 333, 5, 10),
    ((65, 61, 64, 66, 64), 0, 3, 333, 8, 1),
    ((5000, 5000), 0, 0, 5000, 2, 2),
    ((5000,), 1, 0, 5000, 2, 2),
    ((12353,), 2, 3, 5000, 6, 6),
    ((1915, 1904), 2, 0, 700, 4, 6),
    ((1598, 1816, 1580, 1651, 1755), 1, 0, 700, 6, 12),
    ((496, 524, 537, 524), 1, 1, 700, 6, 4),
    ((607,), 0, 0, 700, 1, 1),
    ((4888, 5774), 2, 0, 5000, 4, 4),
    ((425, 423, 420), 0, 3, 333, 6, 6),
    ((850, 810), 1, 0, 333, 3, 5),
    ((5000, 5000), 0, 3, 5000, 5, 5),
    ((452, 436, 416, 430, 428), 0, 3, 333, 8, 8),
    ((897,), 1, 3, 700, 5, 5),
]
EXTERNAL_TABLE = [
    # total, target, existing replicas, tolerance, replicas; the tests of replica_calculator_test.go whose name has
    # PerPodCMExternal or PerPodCMObject
    (8600, 2150, 3, DEFAULT, 4),
    (20000, 5000, 3, DEFAULT, 4),
    (8600, 2867, 5, DEFAULT, 3),
    (6000, 2000, 5, DEFAULT, 3),
    (8600, 2900, 3, DEFAULT, 3),
    (20166, 5000, 4, DEFAULT, 4),
    (20208, 5000, 4, FINE, 5),
]
EXTERNAL_RUN = [
    # total, target, existing, replicas; GetExternalPerPodMetricReplicas run on random totals
    (1355, 5000, 0, 1),
    (8913, 1000, 6, 9),
    (43783, 5000, 9, 9),
    (4974, 5000, 1, 1),
    (55175, 16000, 9, 4),
    (18941, 5000, 7, 4),
    (123560, 16000, 7, 8),
    (48185, 16000, 2, 4),
    (52475, 1000, 9, 53),
    (5398, 1000, 6, 6),
    (46831, 5000, 4, 10),
    (42160, 1000, 10, 43),
    (7156, 1000, 7, 7),
    (13976, 1000, 4, 14),
]


def rules(pods: int = 0, pods_s: float = 0, percent: int = 0, percent_s: float = 0, window: float = 0) -> ScalingRules:
    """As generateScalingRules of horizontal_test.go: a policy of value 0 is left out."""
    policies = [RatePolicy("Pods", pods, pods_s)] * (pods > 0) + [RatePolicy("Percent", percent, percent_s)] * (
        percent > 0
    )
    return ScalingRules(window, tuple(policies))


def events(*changes: int) -> tuple[TimedValue, ...]:
    """As generateEventsUniformDistribution of horizontal_test.go over 120 s."""
    return tuple(TimedValue(NOW - 120 * (i + 1) / (len(changes) + 1), change) for i, change in enumerate(changes))


RATE_TABLE = [
    # rules for up, rules for down, changes, current, wanted, limited; TestScalingWithRules, cases that no bound decides
    (rules(1, 60), None, (), 3, 1000, 4),
    (None, rules(20, 60), (), 1000, 3, 980),
    (None, None, (), 10, 50, 20),
    (rules(100, 60, 100, 60), None, (), 10, 500, 110),
    (rules(2, 60, 100, 60), None, (), 10, 500, 20),
    (rules(100, 60), None, (), 10, 50, 50),
    (rules(10000, 60), None, (), 10, 50, 50),
    (rules(30, 60), None, (), 10, 50, 40),
    (rules(percent=200, percent_s=60), None, (), 10, 50, 30),
    (None, rules(20, 60, 1, 60, 300), (), 100, 2, 80),
    (None, rules(2, 60, 1, 60, 300), (), 100, 2, 98),
    (None, rules(5, 60, window=300), (), 10, 2, 5),
    (None, rules(percent=50, percent_s=60, window=300), (), 10, 5, 5),
    (rules(5, 120), None, events(1, 5, 9), 100, 500, 100),
    (rules(150, 120), None, events(1, 5, 9), 100, 500, 235),
    (rules(percent=200, percent_s=120), None, events(1, 5, 9), 100, 500, 255),
    (rules(percent=300, percent_s=300), None, events(4) + events(-2), 6, 24, 16),
    (None, None, events(-1, -5, -9), 10, 5, 5),
    (None, rules(5, 120, window=300), events(-1, -5, -9), 100, 2, 100),
    (None, rules(percent=50, percent_s=120, window=300), events(-2, -4, -6), 100, 0, 56),
    (None, rules(percent=50, percent_s=180), events(2) + events(-4), 10, 1, 6),
    (None, rules(percent=10, percent_s=120, window=300), events(-10, -10, -10), 100, 0, 100),
    (None, rules(percent=1000, percent_s=120, window=300), events(-10, -10, -10), 10, 5, 5),
    (rules(1000, 60), None, events(8, 12, 9, 11), 100, 200, 200),
    (rules(1000, 120, 100, 60), None, events(8, 12, 9, 11), 100, 200, 200),
    (rules(1000, 30, 100, 60), None, events(8, 12, 9, 11), 100, 200, 200),
    (None, rules(1000, 60, window=300), events(-8, -12, -9, -11), 100, 5, 5),
]
STABLE_TABLE = [
    # recommendations (count, minutes ago), window for up, for down, current, wanted, stabilized;
    # TestNormalizeDesiredReplicasWithBehavior
    ([], 0, 0, 100, 5, 5),
    ([(4, 2), (5, 1)], 0, 180, 100, 3, 5),
    ([(4, 2), (5, 1)], 300, 0, 1, 7, 4),
    ([(1, 2), (2, 1)], 300, 0, 100, 3, 3),
    ([(4, 2), (5, 1)], 0, 300, 1, 3, 3),
    ([(10, 10), (9, 9)], 0, 0, 100, 3, 3),
    ([(10, 10), (9, 9)], 0, 0, 1, 100, 100),
    ([(10, 10), (4, 1), (5, 2), (9, 9)], 0, 180, 100, 3, 5),
    ([(10, 100), (6, 1), (5, 2), (9, 3)], 300, 0, 1, 100, 5),
    ([(2, 100), (3, 3)], 300, 300, 2, 1, 2),
    ([(2, 100), (1, 3)], 300, 300, 2, 3, 2),
]
SLO_RECIPE = Behavior(rules(4, 60, 100, 60, 30), rules(1, 120, window=180))
KEDA = Behavior(rules(percent=100, percent_s=15), rules(percent=100, percent_s=15, window=300))
SLOW = Behavior(rules(2, 60, 50, 45, 60), rules(3, 90, 10, 60, 60))
SYNCS = [
    # behavior, wanted every 15 s, ordered (3*2 is twice 3); recordInitialRecommendation,
    # stabilizeRecommendationWithBehaviors, convertDesiredReplicasWithBehaviorRate and storeScaleEvent run in turn
    (
        DEFAULT_BEHAVIOR,
        "3*10 11*6 38*15 37*4 16 38*13 7 24*8 3*2",
        "3*10 7 11*5 22 38*43",
    ),
    (
        SLO_RECIPE,
        "3 6*9 21*8 8*3 12*17 13*5 20*2 6*4 15 5 11 3*7 24",
        "2*2 6*9 12*4 21*14 20*8 19*7 20*12 19*4",
    ),
    (
        KEDA,
        "3*3 13*6 23 14*3 20*6 23*10 9*10 21 30*7 22*4 26*4 3*5",
        "3*3 6 12 13*4 23*31 30*20",
    ),
    (
        SLOW,
        "3*4 17*4 15*8 10 22*3 7*6 12*6 30 3*22 28*2 20*3",
        "2*4 3*3 5*3 8*3 12*10 9*6 12*7 9*4 8*2 6*4 5*2 3*10 5*2",
    ),
]


@dataclass(frozen=True)
class Scripted:
    """A metric that asks for these replicas, one sync after the other."""

    wanted: tuple[int, ...]

    def replicas(self, observation: Observation, pool: PoolStatus, tolerance: Tolerance) -> int | None:
        return self.wanted[round((observation.now - NOW) / 15)]


def test_the_mean_over_pods_gives_the_replicas_of_the_source() -> None:
    table = [(pods_metric_replicas(*row[:4]), row[4]) for row in PODS_TABLE]
    for values, missing, unready, target, current, replicas in PODS_RUN:
        pods = PodMetrics(values, len(values), missing, unready)
        table.append((pods_metric_replicas(pods, target, current, DEFAULT), replicas))
    assert differences(*zip(*table, strict=True)) == []


def test_a_total_gives_the_replicas_of_the_source() -> None:
    table = [(average_value_replicas(*row[:4]), row[4]) for row in EXTERNAL_TABLE]
    table += [(average_value_replicas(total, target, n, DEFAULT), made) for total, target, n, made in EXTERNAL_RUN]
    assert differences(*zip(*table, strict=True)) == []


def test_rate_policies_limit_as_in_the_source() -> None:
    limited = []
    for up, down, changes, current, wanted, _ in RATE_TABLE:
        behavior = Behavior(up or DEFAULT_BEHAVIOR.up, down or DEFAULT_BEHAVIOR.down)
        limited.append(rate_limited(ScaleHistory(changes=changes), wanted, current, NOW, behavior))
    assert differences(limited, [row[-1] for row in RATE_TABLE]) == []


def test_stabilization_takes_the_recommendation_of_the_source() -> None:
    found = []
    for past, up, down, current, wanted, _ in STABLE_TABLE:
        history = ScaleHistory(tuple(TimedValue(NOW - 60 * minutes, count) for count, minutes in past))
        behavior = Behavior(
            replace(DEFAULT_BEHAVIOR.up, stabilization_s=up), replace(DEFAULT_BEHAVIOR.down, stabilization_s=down)
        )
        found.append(stabilized(history, wanted, current, NOW, behavior))
    assert differences(found, [row[-1] for row in STABLE_TABLE]) == []


def test_a_quarter_of_an_hour_of_syncs_orders_what_the_source_orders() -> None:
    for behavior, wanted, ordered in SYNCS:
        hpa = Hpa((Scripted(tuple(series(wanted))),), behavior)
        assert differences(follow(hpa, lambda at, n: seen(view(n), at), 60), series(ordered)) == []


def test_pods_are_counted_missing_unready_or_left_out_by_their_state() -> None:
    pool = view(3, starting=2, draining=1)
    replicas = tuple(replace(replica, node="n" * (replica.name != "starting-1")) for replica in pool.replicas)
    values = {"ready-0": 0.5, "ready-1": 0.7004, "draining-0": 9.0, "unknown": -1.0}
    assert group_pods(replace(pool, replicas=replicas), values) == PodMetrics((500, 700, 0), 2, missing=2, unready=1)


def test_a_metric_without_data_blocks_scale_down_but_not_scale_up() -> None:
    blind = ExternalMetric("queued", 5)
    for kv, starting, expected in [(0.1, 0, 4), (1.0, 0, 6), (1.0, 4, 8)]:
        pool = loaded(4, starting, kv_used=kv)
        silent = seen(pool, demand=Demand(1, 0))
        counts, _ = Hpa((blind, PodsMetric("kv", 0.7))).decide(silent, Hpa(()).initial_state())
        assert counts == {"main": expected}


def test_without_any_data_nothing_changes_and_nothing_is_remembered() -> None:
    hpa = hpa_kv()
    counts, state = hpa.decide(seen(view(3, loads=())), hpa.initial_state())
    assert counts == {"main": 3}
    assert [point.value for point in state.pools["main"].recommendations] == [3]


def test_a_pool_that_was_scaled_to_zero_stays_there() -> None:
    hpa = hpa_queue()
    assert hpa.decide(seen(view(0), queued=50), hpa.initial_state())[0] == {"main": 0}


def test_a_cut_order_counts_as_what_was_ordered() -> None:
    first = observe_order(ScaleHistory(), 4, NOW, DEFAULT_BEHAVIOR)
    second = observe_order(first, 6, NOW + 14, DEFAULT_BEHAVIOR)
    assert second.changes == (TimedValue(NOW, 2),)
    assert rate_limited(second, 50, 6, NOW + 14, DEFAULT_BEHAVIOR) == 8


def test_each_metric_reads_its_own_signal() -> None:
    pool = view(2, loads=(load("ready-0", running=90, waiting=20), load("ready-1", running=60, waiting=30)))
    busy = seen(pool, queued=10, running=190)
    wanted = {"queue": (hpa_queue(20), 3), "open": (hpa_concurrency(40), 5), "kv": (hpa_kv(0.02), 6)}
    for name, (hpa, replicas) in wanted.items():
        assert hpa.decide(busy, hpa.initial_state())[0] == {"main": replicas}, name


def test_a_total_of_the_service_needs_a_single_pool() -> None:
    two = seen(view(1), pools=(view(1), view(1, name="spot")))
    with pytest.raises(InvalidInput, match=r"pools: .* main, spot: keep one"):
        hpa_queue().decide(two, hpa_queue().initial_state())
    assert hpa_kv().decide(two, hpa_kv().initial_state())[0].keys() == {"main", "spot"}


@settings(max_examples=20)
@given(st.lists(st.integers(0, 400), min_size=2, max_size=30))
def test_growth_stays_within_the_policies_and_a_flat_input_settles(queues: list[int]) -> None:
    flat = 25
    queues += [queues[-1]] * flat
    ordered = follow(hpa_queue(), lambda at, n: seen(view(n), at, queued=queues[round(at / 15)]), len(queues))
    assert all(b <= max(2 * a, a + 4) for a, b in pairwise(ordered))
    assert len(set(ordered[-3:])) == 1
    assert ordered[-1] >= min(queues[-1] / 5.5, 40)

"""The well-known laws, on hand-computed vectors."""

from tests.autoscaler.factories import decide, demand, goal, load, observation, pool, seasoned, view
from tests.every import cases

from paceline_autoscaler.model.demand_history import DemandHistories
from paceline_autoscaler.state import State
from paceline_autoscaler.types import Decision, Observation, PolicyName
from paceline_core.registry.enums import Direction, ScaleReason


def decided(seen: Observation, state: State | None = None) -> Decision:
    return decide(seen, state or State())[0]


def under(policy: PolicyName, ready: int = 2, waiting: int = 0, kv_used: float = 0.1, **traffic: int) -> Observation:
    loads = tuple(load(f"ready-{n}", slots=20, waiting=waiting, kv_used=kv_used) for n in range(ready))
    return observation(goal=goal(policy=policy), demand=demand(0.5, **traffic), pools=(view(ready, loads=loads),))


@cases(
    ("seen", "replicas"),
    [
        (under("queue", queued=4, waiting=4), 3),  # (4 + 8) / 5
        (under("queue", queued=10), 2),  # 2.0: at the target
        (under("queue", queued=11), 2),  # 2.2: within a tenth
        (under("queue", queued=12), 3),
        (under("concurrency", in_flight=29), 2),  # 29 / (0.7 * 20) = 2.07
        (under("concurrency", in_flight=34), 3),
        (under("kv", kv_used=0.9), 3),  # 1.8 / 0.7 = 2.57
        (under("kv", kv_used=0.7), 2),
    ],
)
def test_replicas_are_the_total_over_the_target(seen: Observation, replicas: int) -> None:
    assert decided(seen).replicas == replicas


def test_down_goes_to_the_highest_recommendation_of_five_minutes() -> None:
    calm = under("concurrency", ready=6, in_flight=25)
    assert decided(calm, seasoned(calm, 200)).direction is Direction.HOLD
    decision = decided(calm, seasoned(calm, 310))
    assert (decision.replicas, decision.reason) == (2, ScaleReason.CONSOLIDATE)


def test_a_ratio_never_takes_the_last_replica() -> None:
    idle = under("concurrency", ready=3, in_flight=0)
    assert decided(idle, seasoned(idle, 400)).replicas == 3


def test_changing_the_policy_forgets_the_old_policys_peaks() -> None:
    before = seasoned(under("concurrency", ready=6, in_flight=80))
    _, after = decide(under("queue", ready=6), before)
    assert isinstance(after.own, DemandHistories)
    assert [peak.rate for peak in after.own.of("both").peaks] == [0.0]


def test_replicas_go_to_the_cheapest_pool_with_room() -> None:
    pools = (pool(name="a", dollars_per_hour=2.0, max=2), pool(name="b", dollars_per_hour=5.0))
    seen = observation(
        goal=goal(policy="queue", pools=pools), demand=demand(0.5, queued=22), pools=(view(name="a"), view(name="b"))
    )
    assert {row.name: row.replicas for row in decided(seen).pools} == {"a": 2, "b": 3}


def test_fixed_keeps_the_minimum_whatever_happens() -> None:
    fixed = goal(policy="fixed", pools=(pool(min=2),))
    assert decided(observation(goal=fixed, demand=demand(9.0))).replicas == 2
    waiting = observation(goal=fixed, demand=demand(9.0, queued=99), pools=(view(ready=5),))
    assert (decided(waiting).replicas, decided(waiting).reason) == (2, ScaleReason.BOUNDS)

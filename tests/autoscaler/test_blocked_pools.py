"""Orders of a pool without capacity: where they go, and that nothing is ordered twice."""

from dataclasses import replace

import pytest
from tests.autoscaler.factories import NOW, decide, demand, goal, load, observation, pool

from paceline_autoscaler.state import State
from paceline_autoscaler.types import Decision, Observation, PoolStatus, Replica
from paceline_core.registry.enums import ReplicaState, ScaleLimit

CHEAP, DEAR = pool(name="cheap", dollars_per_hour=2.0), pool(name="dear", min=0, dollars_per_hour=4.0)


def status(name: str, ready: int, starting: int = 0, age_s: float = 500.0) -> PoolStatus:
    replicas = [Replica(f"{name}-{n}", ReplicaState.READY, 900.0, "n1") for n in range(ready)]
    replicas += [Replica(f"{name}-new-{n}", ReplicaState.STARTING, age_s) for n in range(starting)]
    return PoolStatus(name, ready + starting, tuple(replicas), tuple(load(r.name) for r in replicas[:ready]))


def seen(rate: float, *pools: PoolStatus, dear: int = 10, **changes: object) -> Observation:
    spec = goal(pools=(CHEAP, replace(DEAR, max=dear)), **changes)
    return observation(goal=spec, demand=demand(rate), pools=pools)


def orders(decision: Decision) -> dict[str, int]:
    return {row.name: row.replicas for row in decision.pools}


def test_three_stuck_starts_are_replaced_from_the_next_pool_within_one_pass() -> None:
    decision, _ = decide(seen(3.2, status("cheap", 1, starting=3), status("dear", 0)), State())
    assert orders(decision) == {"cheap": 1, "dear": 3}
    assert (
        "pool cheap has no capacity (replicas cheap-new-0, cheap-new-1, cheap-new-2 are not ready" in decision.sentence
    )


def test_starts_that_are_in_time_are_not_replaced() -> None:
    decision, _ = decide(seen(3.2, status("cheap", 1, starting=3, age_s=15.0), status("dear", 0)), State())
    assert orders(decision) == {"cheap": 4, "dear": 0}


def test_orders_that_no_other_pool_has_room_for_stay_and_no_more_are_made() -> None:
    decision, _ = decide(seen(5.0, status("cheap", 1, starting=3), status("dear", 0), dear=1), State())
    assert orders(decision) == {"cheap": 3, "dear": 1}
    assert decision.limit is ScaleLimit.CAPACITY


def test_a_service_with_one_pool_keeps_its_orders_and_says_that_capacity_is_missing() -> None:
    spec = goal(pools=(CHEAP,))
    decision, _ = decide(observation(goal=spec, demand=demand(5.0), pools=(status("cheap", 1, starting=2),)), State())
    assert orders(decision) == {"cheap": 3}
    assert decision.limit is ScaleLimit.CAPACITY


def test_a_pool_is_tried_again_once_its_block_is_over_and_blocked_for_longer_if_that_fails() -> None:
    state = State()
    stuck = seen(3.2, status("cheap", 1, starting=3), status("dear", 0))
    _, state = decide(stuck, state)
    moved = replace(seen(6.2, status("cheap", 1), status("dear", 3)), now=NOW + 30)
    decision, state = decide(moved, state)
    assert orders(decision)["cheap"] == 1
    later = replace(moved, now=NOW + 61)
    decision, state = decide(later, state)
    assert orders(decision)["cheap"] > 1
    failed = replace(seen(6.2, status("cheap", 1, starting=3, age_s=50.0), status("dear", 3)), now=NOW + 111)
    decision, state = decide(failed, state)
    assert (state.learned.blocked[0].tries, state.learned.blocked[0].until) == (2, NOW + 111 + 120)


@pytest.mark.parametrize(("rate", "dear"), [(2.5, 2), (1.5, 1), (0.5, 0)])
def test_an_absent_order_goes_before_a_replica_that_works(rate: float, dear: int) -> None:
    state = State()
    for ago in range(600, 0, -5):
        now = NOW - ago
        _, state = decide(replace(seen(rate, status("cheap", 1, starting=1), status("dear", 2)), now=now), state)
    decision, _ = decide(seen(rate, status("cheap", 1, starting=1), status("dear", 2)), state)
    assert orders(decision) == {"cheap": 1, "dear": dear}


def test_a_full_budget_is_kept_while_orders_move() -> None:
    spec = {"budget_gpus": 4}
    decision, state = decide(seen(5.0, status("cheap", 1, starting=3), status("dear", 0), **spec), State())
    assert orders(decision)["dear"] == 0
    gone = replace(seen(5.0, status("cheap", orders(decision)["cheap"]), status("dear", 0), **spec), now=NOW + 5)
    decision, _ = decide(gone, state)
    assert sum(orders(decision).values()) == 4

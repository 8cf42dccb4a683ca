"""What no policy may override: missing data, bounds, budget, pauses, advice, sleep and waking."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.autoscaler.factories import (
    NOW,
    answered,
    attainment,
    decide,
    demand,
    goal,
    load,
    observation,
    pool,
    seasoned,
    view,
)
from tests.every import cases

from paceline_autoscaler.policies import POLICIES
from paceline_autoscaler.state import State
from paceline_autoscaler.types import (
    Attainment,
    Decision,
    Demand,
    MissingSignal,
    Observation,
    PolicyName,
    PoolStatus,
    ScalingSpec,
)
from paceline_core.registry.enums import Direction, QueryResult, ScaleLimit, ScaleReason

SILENT_ANSWERS = [QueryResult.STALE, QueryResult.PARTIAL, QueryResult.ERROR, QueryResult.EMPTY, QueryResult.NAN]


def idle_pool(rate: float = 0.5, ready: int = 4) -> Observation:
    """More replicas than are needed: the next decision would release one."""
    return observation(demand=demand(rate), pools=(view(ready=ready),))


def decided(seen: Observation, state: State | None = None) -> Decision:
    return decide(seen, state or State())[0]


def missing(seen: Observation, gap: MissingSignal) -> Observation:
    match gap:
        case MissingSignal.GATEWAYS:
            return replace(seen, demand=replace(seen.demand, expected=2))
        case MissingSignal.ENDPOINTS:
            return replace(seen, endpoints_lost=True)
        case MissingSignal.LOAD:
            return replace(seen, pools=tuple(replace(pool, loads=pool.loads[1:]) for pool in seen.pools))
        case MissingSignal.ATTAINMENT:
            return replace(seen, attainment=answered(QueryResult.ERROR))
        case MissingSignal.OBJECTS:
            return replace(seen, objects_lost=True)
        case MissingSignal.STATE:
            return replace(seen, state_unread=True)


def test_the_whole_view_lets_a_replica_go() -> None:
    assert decided(idle_pool(), seasoned(idle_pool())).direction is Direction.DOWN


@pytest.mark.parametrize("gap", list(MissingSignal))
def test_nothing_is_removed_while_a_part_is_missing(gap: MissingSignal) -> None:
    seen = missing(idle_pool(), gap)
    decision = decided(seen, seasoned(idle_pool()))
    assert (decision.direction, decision.gaps) == (Direction.HOLD, (gap,))
    if gap is not MissingSignal.GATEWAYS:
        assert decision.reason is ScaleReason.MISSING_DATA
        assert "otherwise 4→1" in decision.sentence


def two_pools(silent: str, silent_s: float) -> tuple[Observation, State]:
    """Two idle pools; the first worker of one of them has not reported its load for `silent_s`."""
    spec = goal(pools=(pool(name="a"), pool(name="b", dollars_per_hour=9.0)))
    views = tuple(renamed(view(ready=2), name) for name in "ab")
    heard = observation(goal=spec, demand=demand(0.5), pools=views)
    seen = replace(
        heard, pools=tuple(replace(one, loads=one.loads[1:]) if one.name == silent else one for one in views)
    )
    before = replace(heard, now=heard.now - silent_s)
    return seen, seasoned(seen, silent_s, seasoned(before))


def renamed(status: PoolStatus, name: str) -> PoolStatus:
    replicas = tuple(replace(replica, name=f"{name}-{replica.name}") for replica in status.replicas)
    return PoolStatus(name, status.desired, replicas, tuple(load(replica.name) for replica in replicas))


def orders(decision: Decision) -> dict[str, int]:
    return {row.name: row.replicas for row in decision.pools}


def test_a_silent_worker_keeps_its_own_pool_alone() -> None:
    assert orders(decided(*two_pools("a", 60))) == {"a": 2, "b": 1}
    held = decided(*two_pools("b", 60))
    assert (orders(held), held.reason) == ({"a": 1, "b": 2}, ScaleReason.MISSING_DATA)
    assert "not every ready replica of b reports its load; otherwise 4→2" in held.sentence


def test_a_worker_that_stays_silent_keeps_its_pool_for_ten_minutes() -> None:
    assert orders(decided(*two_pools("b", 590))) == {"a": 1, "b": 2}
    assert orders(decided(*two_pools("b", 610))) == {"a": 1, "b": 1}


def test_a_pool_of_which_nobody_reports_is_never_made_smaller() -> None:
    seen = idle_pool()
    mute = replace(seen, pools=tuple(replace(one, loads=()) for one in seen.pools))
    assert decided(mute, seasoned(mute, 1200, seasoned(seen))).direction is Direction.HOLD


@pytest.mark.parametrize("gap", list(MissingSignal))
def test_demand_and_load_still_add_while_a_part_is_missing(gap: MissingSignal) -> None:
    seen = missing(observation(demand=demand(4.0), pools=(view(ready=2),)), gap)
    decision = decided(seen, seasoned(seen, 5, seasoned(observation(pools=(view(ready=2),), now=NOW - 10))))
    assert (decision.direction, decision.gaps) == (Direction.UP, (gap,))


@pytest.mark.parametrize("result", SILENT_ANSWERS)
def test_no_answer_of_the_metrics_source_removes_capacity_under_traffic(result: QueryResult) -> None:
    seen = replace(idle_pool(), attainment=answered(result))
    decision = decided(seen, seasoned(idle_pool()))
    assert (decision.reason, decision.gaps) == (ScaleReason.MISSING_DATA, (MissingSignal.ATTAINMENT,))


@pytest.mark.parametrize("result", SILENT_ANSWERS)
def test_no_answer_of_the_metrics_source_adds_by_attainment(result: QueryResult) -> None:
    steady = observation(demand=demand(0.7))
    burned = Attainment(result, 60.0, attainment(0, 100).verdicts)
    assert decided(replace(steady, attainment=burned), seasoned(steady)).direction is Direction.HOLD


@pytest.mark.parametrize("result", [QueryResult.EMPTY, QueryResult.NAN])
def test_empty_and_nan_are_explained_when_every_gateway_reports_that_nobody_asked(result: QueryResult) -> None:
    quiet = replace(idle_pool(rate=0.0), attainment=answered(result))
    assert decided(quiet, seasoned(quiet)).direction is Direction.DOWN


@pytest.mark.parametrize("result", [QueryResult.STALE, QueryResult.PARTIAL, QueryResult.ERROR])
def test_silence_of_clients_explains_no_other_answer(result: QueryResult) -> None:
    quiet = replace(idle_pool(rate=0.0), attainment=answered(result))
    assert decided(quiet, seasoned(quiet)).reason is ScaleReason.MISSING_DATA


def test_before_the_first_answer_the_slo_counts_as_unmeasured() -> None:
    assert decided(replace(idle_pool(), attainment=None)).gaps == (MissingSignal.ATTAINMENT,)


def test_a_service_that_promises_nothing_needs_no_measure() -> None:
    seen = replace(idle_pool(), goal=goal(targets=()), attainment=None)
    assert decided(seen, seasoned(seen)).direction is Direction.DOWN


def test_without_any_gateway_the_view_is_partial() -> None:
    assert MissingSignal.GATEWAYS in decided(observation(demand=Demand(0, 0))).gaps


def test_a_silent_gateway_makes_the_round_trip_begin_anew() -> None:
    known = seasoned(replace(idle_pool(), now=NOW - 20))
    _, known = decide(missing(replace(idle_pool(), now=NOW - 20), MissingSignal.GATEWAYS), known)
    assert decided(idle_pool(), known).reason is ScaleReason.COOLDOWN


parts = st.sets(st.sampled_from(list(MissingSignal)), min_size=1)


@given(
    parts,
    st.sampled_from([name for name in POLICIES if name not in ("fixed", "external", "advise")]),
    st.floats(0, 5),
    st.integers(1, 8),
    st.integers(0, 3),
    st.integers(0, 2),
    st.sampled_from(SILENT_ANSWERS),
    st.booleans(),
)
def test_whatever_is_missing_no_policy_orders_less_than_is_ordered(
    gaps: set[MissingSignal],
    policy: PolicyName,
    rate: float,
    ready: int,
    starting: int,
    draining: int,
    result: QueryResult,
    idle: bool,
) -> None:
    wish = goal(policy=policy, pools=(pool(min=0, max=12),), idle_after_s=30.0 if idle else None)
    whole = observation(goal=wish, demand=demand(0.0 if idle else rate), pools=(view(ready, starting, draining),))
    seen = whole
    for gap in gaps:
        seen = missing(seen, gap)
    if gaps == {MissingSignal.ATTAINMENT} and not (idle or rate == 0):
        seen = replace(seen, attainment=answered(result))
    decision = decided(seen, seasoned(whole, 60))
    assert decision.gaps
    assert decision.replicas >= ready + starting


def test_the_maximum_is_reported_to_bind() -> None:
    seen = observation(goal=goal(pools=(pool(max=3),)), demand=demand(4.0))
    decision = decided(seen)
    assert (decision.replicas, decision.limit, decision.reason) == (3, ScaleLimit.MAX, ScaleReason.DEMAND)
    assert decision.sentence.endswith("max of main is 3")


def test_at_the_maximum_the_reason_stays_what_it_was() -> None:
    seen = observation(goal=goal(pools=(pool(max=1),)), demand=demand(4.0))
    decision = decided(seen)
    assert (decision.direction, decision.limit, decision.reason) == (Direction.HOLD, ScaleLimit.MAX, ScaleReason.DEMAND)


def test_a_raised_minimum_is_obeyed_at_once() -> None:
    decision = decided(observation(goal=goal(pools=(pool(min=3),))))
    assert (decision.replicas, decision.limit, decision.reason) == (3, ScaleLimit.MIN, ScaleReason.BOUNDS)


def test_a_lowered_maximum_is_obeyed_even_on_missing_data() -> None:
    seen = missing(observation(goal=goal(pools=(pool(max=2),)), pools=(view(ready=5),)), MissingSignal.GATEWAYS)
    decision = decided(seen)
    assert (decision.replicas, decision.limit, decision.reason) == (2, ScaleLimit.MAX, ScaleReason.BOUNDS)


@pytest.mark.parametrize(
    ("budget", "replicas", "words"),
    [
        ({"budget_gpus": 6}, 3, "the budget is 6 GPUs"),
        ({"budget_dollars_per_hour": 9.99}, 2, "the budget is $9.99 an hour"),
        ({"budget_gpus": 6, "budget_dollars_per_hour": 4.0}, 1, "the budget is 6 GPUs and $4.00 an hour"),
    ],
)
def test_the_budget_binds(budget: dict[str, float], replicas: int, words: str) -> None:
    seen = observation(goal=goal(pools=(pool(gpus=2),), **budget), demand=demand(4.0))
    decision = decided(seen)
    assert (decision.replicas, decision.limit) == (replicas, ScaleLimit.BUDGET)
    assert words in decision.sentence


@pytest.mark.parametrize(
    ("pools", "replicas"),
    [
        (view(ready=3), 4),
        (view(ready=3, draining=1), 3),
        (view(ready=2, draining=1), 3),
        (view(ready=2, canary=1), 3),
        (view(ready=3, desired=2), 3),  # a rollout's surge, or a scale-down under way
    ],
)
def test_the_budget_counts_every_replica_that_exists(pools: PoolStatus, replicas: int) -> None:
    seen = observation(goal=goal(budget_gpus=4), demand=demand(8.0), pools=(pools,))
    decision = decided(seen)
    assert (decision.replicas, decision.limit) == (replicas, ScaleLimit.BUDGET)
    assert ("and 1 more replica still exists" in decision.sentence) is (replicas < 4)


def test_a_pool_grows_within_the_budget_only_once_the_other_has_shrunk() -> None:
    spec = goal(policy="fixed", pools=(pool(name="a", min=2), pool(name="b")), budget_gpus=4)
    moved = [renamed(view(ready=count), name) for name, count in (("a", 1), ("b", 3))]
    seen = observation(goal=spec, demand=demand(0.5), pools=tuple(moved))
    assert {pool.name: pool.replicas for pool in decided(seen).pools} == {"a": 1, "b": 1}


def test_a_minimum_that_the_budget_cannot_pay_is_kept_and_reported() -> None:
    seen = observation(goal=goal(pools=(pool(min=2),), budget_gpus=1), pools=(view(ready=2),))
    assert decided(seen).replicas == 2


def test_a_budget_is_dealt_to_all_pools_in_turn() -> None:
    pools = (pool(name="prefill", role="prefill", min=0), pool(name="decode", role="decode", min=0))
    views = (view(name="prefill"), view(name="decode"))
    wish = goal(pools=pools, budget_gpus=4)
    seen = observation(goal=wish, demand=demand(4.0, output_tokens=1e6), pools=views)
    assert all(row.replicas <= 3 for row in decided(seen).pools)
    assert decided(seen).replicas <= 4


PAUSE = "2027-01-15T09:00:00Z"
"""An hour after NOW."""


def test_a_pause_holds_everything_and_reports_what_would_be_done() -> None:
    seen = observation(goal=goal(pause_until=PAUSE), demand=demand(4.0))
    decision = decided(seen)
    assert (decision.direction, decision.reason) == (Direction.HOLD, ScaleReason.PAUSED)
    assert decision.sentence.startswith(f"holds 1: paused until {PAUSE}; would go 1→")


def test_a_pause_ends_by_itself() -> None:
    later = NOW + 3600
    assert decided(observation(now=later, goal=goal(pause_until=PAUSE), demand=demand(4.0))).direction is Direction.UP


@pytest.mark.parametrize("text", ["tomorrow", "", "2027-01-15T09:00:00", "9999999999999"])
def test_a_pause_that_is_no_time_pauses_and_reports_the_fix(text: str) -> None:
    decision = decided(observation(goal=goal(pause_until=text), demand=demand(4.0)))
    assert decision.reason is ScaleReason.PAUSED
    assert "paceline.dev/pause-until" in decision.sentence
    assert "2027-01-15T09:00:00Z" in decision.sentence


def test_advice_is_given_and_not_taken() -> None:
    up = decided(observation(goal=goal(policy="advise"), demand=demand(4.0)))
    assert (up.direction, up.reason, up.replicas, up.pools[0].wish) == (Direction.HOLD, ScaleReason.ADVISE, 1, 5)
    seen = observation(goal=goal(policy="advise"), demand=demand(0.5), pools=(view(ready=4),))
    down = decided(seen, seasoned(seen))
    assert "would go 4→1 and save $12.00 an hour" in down.sentence


def foreign(name: str) -> ScalingSpec:
    return goal(policy="external") if name == "external" else goal(foreign=name)


@pytest.mark.parametrize("name", ["external", "vllm"])
def test_what_belongs_to_others_is_left_alone(name: str) -> None:
    decision = decided(observation(goal=foreign(name), demand=demand(4.0)))
    assert (decision.direction, decision.reason) == (Direction.HOLD, ScaleReason.EXTERNAL)


SLEEPY = goal(pools=(pool(min=0),), idle_after_s=120.0)


def test_an_idle_service_goes_to_zero_when_its_time_has_come() -> None:
    quiet = observation(goal=SLEEPY, demand=demand(0.0), pools=(view(ready=2),), attainment=answered(QueryResult.NAN))
    assert decided(quiet, seasoned(quiet, 100)).replicas > 0
    decision = decided(quiet, seasoned(quiet, 130))
    assert (decision.replicas, decision.reason) == (0, ScaleReason.SCALE_TO_ZERO)


@pytest.mark.parametrize("trace", [{"queued": 1}, {"held": 1}, {"in_flight": 1}])
def test_one_open_request_keeps_a_service_awake(trace: dict[str, int]) -> None:
    seen = observation(goal=SLEEPY, demand=demand(0.0, **trace))
    assert decided(seen, seasoned(seen, 400)).replicas == 1


def test_a_service_does_not_scale_to_zero_on_silence_of_a_gateway() -> None:
    quiet = observation(goal=SLEEPY, demand=Demand(2, 1), attainment=answered(QueryResult.NAN))
    assert decided(quiet, seasoned(quiet, 400)).replicas == 1


def test_a_minimum_of_one_never_scales_to_zero() -> None:
    quiet = observation(goal=goal(idle_after_s=10.0), demand=demand(0.0), attainment=answered(QueryResult.NAN))
    assert decided(quiet, seasoned(quiet)).replicas == 1


@cases("policy", ["slo", "queue", "concurrency", "kv"])
@cases("gap", [None, *MissingSignal])
def test_a_held_request_wakes_a_sleeping_service_whatever_else_is_missing(
    policy: PolicyName, gap: MissingSignal | None
) -> None:
    asleep = observation(
        goal=replace(SLEEPY, policy=policy), demand=demand(0.0, held=1, queued=1), pools=(PoolStatus("main", 0),)
    )
    decision = decided(missing(asleep, gap) if gap else asleep)
    assert (decision.replicas, decision.reason) == (1, ScaleReason.SCALE_FROM_ZERO)


def test_a_wake_without_a_waiting_request_speaks_of_none_that_waits() -> None:
    asleep = observation(goal=SLEEPY, demand=demand(0.5), pools=(PoolStatus("main", 0),))
    decision = decided(asleep)
    assert decision.reason is ScaleReason.SCALE_FROM_ZERO
    assert decision.sentence == "0→1: requests arrive, no replica runs"


def test_a_sleeping_service_stays_at_zero() -> None:
    asleep = observation(
        goal=SLEEPY, demand=demand(0.0), pools=(PoolStatus("main", 0),), attainment=answered(QueryResult.EMPTY)
    )
    decision = decided(asleep, seasoned(asleep))
    assert (decision.replicas, decision.direction) == (0, Direction.HOLD)


def test_both_halves_of_a_split_service_are_woken() -> None:
    pools = tuple(pool(name=role, role=role, min=0) for role in ("prefill", "decode"))
    asleep = observation(
        goal=goal(pools=pools, idle_after_s=60.0),
        demand=demand(0.0, held=3),
        pools=(PoolStatus("prefill", 0), PoolStatus("decode", 0)),
    )
    assert [row.replicas for row in decided(asleep).pools] == [1, 1]

"""The policy `slo`: how many, how soon, and what it refuses to do."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.autoscaler.factories import (
    NOW,
    OUTPUT,
    PROMPT,
    STEADY,
    STEP,
    attainment,
    decide,
    demand,
    flows,
    goal,
    load,
    needed,
    observation,
    pool,
    seasoned,
    view,
)

from paceline_autoscaler.model.demand_history import DemandHistories, DemandHistory
from paceline_autoscaler.model.work_history import WorkHistory, code_of
from paceline_autoscaler.state import Knowledge, State
from paceline_autoscaler.types import ClassSignals, Decision, Observation, PoolStatus, Replica
from paceline_core.registry.enums import Direction, ReplicaState, RequestClass, ScaleLimit, ScaleReason
from paceline_core.wire import StepTime


def decided(seen: Observation, state: State | None = None, knowledge: Knowledge = STEADY) -> Decision:
    return decide(seen, state or State(), knowledge)[0]


@pytest.mark.parametrize(("rate", "replicas"), [(0.5, 1), (0.95, 1), (1.0, 2), (1.9, 2), (2.0, 3), (3.0, 4), (4.4, 5)])
def test_replicas_follow_demand(rate: float, replicas: int) -> None:
    """97 % of each is planned with."""
    assert decided(observation(demand=demand(rate))).replicas == replicas


def test_a_step_is_reported_with_numbers() -> None:
    decision = decided(observation(demand=demand(3.0)))
    assert (decision.direction, decision.reason) == (Direction.UP, ScaleReason.DEMAND)
    may_need = f"demand 3.00 replica-s/s may need a capacity of {needed(3.0):.2f} in 20 s"
    assert decision.sentence == f"1→4: {may_need}; 1 ready"
    (rejected,) = decision.rejected
    assert (rejected.replicas, rejected.dollars_per_hour) == (3, 12.0)
    assert rejected.sentence == "3 for $12.00 an hour: capacity 2.91"


def history(*rates: float) -> Knowledge:
    """The same rates over and over, one for each bin of 30 s."""
    return Knowledge((("both", WorkHistory(codes=bytes(map(code_of, rates)) * 100, mean=sum(rates) / len(rates))),))


def test_a_rise_that_came_before_is_ordered_ahead_of() -> None:
    """Every three minutes demand rose from 0.5 to 3 for three minutes: from 0.5 it may do so again."""
    waves = history(*[0.5] * 6, *[3.0] * 6)
    calm = observation(demand=demand(0.5))
    assert (decided(calm).replicas, decided(calm, knowledge=waves).replicas) == (1, 4)


def test_replicas_are_kept_for_a_rise_that_comes_again() -> None:
    waves = history(*[0.5] * 6, *[3.0] * 6)
    lull = observation(demand=demand(0.5), pools=(view(ready=4),))
    assert decided(lull, seasoned(lull, knowledge=waves), waves).replicas == 4


def test_a_service_without_a_history_has_replicas_to_spare() -> None:
    seen = observation(goal=goal(pools=(pool(max=100),)), demand=demand(30.0))
    assert decided(seen, knowledge=Knowledge()).replicas > decided(seen).replicas


def test_more_demand_is_ordered_for_when_two_passes_agree() -> None:
    state = seasoned(observation(demand=demand(0.5)))
    risen = observation(demand=demand(3.0))
    first, state = decide(risen, state)
    second, _ = decide(replace(risen, now=NOW + 5), state)
    assert (first.direction, second.replicas) == (Direction.HOLD, 4)


def test_of_two_passes_the_lower_demand_counts() -> None:
    state = seasoned(observation(demand=demand(1.5)), 5)
    assert decided(observation(demand=demand(3.0)), state).replicas == 2


def test_a_backlog_needs_no_second_pass() -> None:
    calm = seasoned(observation(demand=demand(0.5)))
    assert decided(observation(demand=demand(0.5, queued=800, queued_tokens=800 * PROMPT)), calm).replicas == 3


def test_what_is_already_starting_is_not_ordered_again() -> None:
    decision = decided(observation(demand=demand(3.0), pools=(view(ready=1, starting=3),)))
    assert (decision.direction, decision.reason, decision.replicas) == (Direction.HOLD, ScaleReason.PENDING, 4)
    assert "3 starting (next in 15 s)" in decision.sentence


def test_what_was_ordered_and_is_not_even_listed_yet_counts_as_coming() -> None:
    ordered = view(ready=1, desired=4)
    assert decided(observation(demand=demand(3.0), pools=(ordered,))).direction is Direction.HOLD


def test_a_start_that_is_overdue_is_still_the_same_order() -> None:
    stuck = view(ready=1, starting=3)
    replicas = tuple(replace(r, age_s=500.0) if r.state is ReplicaState.STARTING else r for r in stuck.replicas)
    assert decided(observation(demand=demand(3.0), pools=(replace(stuck, replicas=replicas),))).replicas == 4


def test_a_backlog_asks_for_what_clears_it_in_time_and_no_more() -> None:
    """80 replica-s and 0.5 a second for 55 s; the ready one does 53 of them, and each new one 34 in its 35 s."""
    decision = decided(observation(demand=demand(0.5, queued=800, queued_tokens=800 * PROMPT)))
    assert (decision.reason, decision.replicas) == (ScaleReason.BACKLOG, 3)
    assert decision.sentence == ("1→3: demand 0.50 replica-s/s and backlog 80.0 replica-s over 55 s need 3; 1 ready")
    (rejected,) = decision.rejected
    assert rejected.sentence == "2 for $8.00 an hour: 0.58 replica-s/s too little to catch up in 35 s"


def test_work_waiting_inside_workers_is_backlog_too() -> None:
    busy = view(loads=(load("ready-0", waiting=800, queued_tokens=800 * PROMPT),))
    assert decided(observation(demand=demand(0.5), pools=(busy,))).replicas == 3


def test_queued_work_with_time_to_spare_is_cleared_in_part() -> None:
    patient = goal(targets=())
    for deadline_s, replicas in ((3600.0, 1), (30.0, 3)):
        waiting = demand(0.5, queued=800, queued_tokens=800 * PROMPT, deadline_s=deadline_s)
        assert decided(observation(goal=patient, demand=waiting)).replicas == replicas


def test_nothing_is_released_before_a_round_trip_has_been_observed() -> None:
    seen = observation(demand=demand(0.5), pools=(view(ready=3),))
    decision = decided(seen)
    assert (decision.direction, decision.reason) == (Direction.HOLD, ScaleReason.COOLDOWN)
    assert decided(seen, seasoned(seen, 40)).direction is Direction.HOLD
    assert decided(seen, seasoned(seen, 60)).direction is Direction.DOWN


@pytest.mark.parametrize(
    ("rate", "left", "capacity"),
    [(0.5, 1, "1 replica has 0.97"), (1.5, 2, "2 replicas have 1.94"), (2.5, 3, "3 replicas have 2.91")],
)
def test_all_replicas_that_a_round_trip_did_not_need_leave_at_once(rate: float, left: int, capacity: str) -> None:
    seen = observation(demand=demand(rate), pools=(view(ready=4),))
    decision = decided(seen, seasoned(seen))
    assert (decision.direction, decision.reason) == (Direction.DOWN, ScaleReason.CONSOLIDATE)
    was_needed = f"a capacity of {needed(rate):.2f} was needed in the last 50 s"
    assert decision.sentence == f"4→{left}: {was_needed}; {capacity}"


def test_a_peak_within_the_round_trip_keeps_its_replicas() -> None:
    calm, busy = demand(0.5), demand(2.4)
    pools = (view(ready=3),)
    state = seasoned(observation(demand=calm, pools=pools, now=NOW - 30))
    _, state = decide(observation(demand=busy, pools=pools, now=NOW - 30), state)
    decision = decided(observation(demand=calm, pools=pools), state)
    assert decision.direction is Direction.HOLD
    (rejected,) = decision.rejected
    assert rejected.sentence == (
        f"2 for $8.00 an hour: a capacity of {needed(2.4, 0.5):.2f} was needed in the last 50 s, and they have 1.94"
    )


def test_the_last_replica_stays_however_idle_it_is() -> None:
    seen = observation(demand=demand(0.0), goal=goal(pools=(pool(min=0),)))
    assert decided(seen, seasoned(seen)).replicas == 1


def test_no_second_replica_leaves_while_one_is_draining() -> None:
    seen = observation(demand=demand(0.5), pools=(view(ready=3, draining=1),))
    decision = decided(seen, seasoned(seen))
    assert (decision.direction, decision.reason) == (Direction.HOLD, ScaleReason.COOLDOWN)


def test_no_second_replica_leaves_before_the_first_has_begun_to() -> None:
    seen = observation(demand=demand(0.5), pools=(view(ready=4, desired=3),))
    assert decided(seen, seasoned(seen)).direction is Direction.HOLD


def test_a_burning_budget_adds_one_once_supply_has_settled() -> None:
    burning = observation(demand=demand(0.7), attainment=attainment(80, 20))
    decision = decided(burning, seasoned(observation(demand=demand(0.7))))
    assert (decision.replicas, decision.reason) == (2, ScaleReason.ATTAINMENT)
    assert "burn 4.0 (limit 1)" in decision.sentence


def test_a_burn_that_idle_replicas_cannot_mend_adds_nothing() -> None:
    burning = observation(demand=demand(0.2), attainment=attainment(80, 20))
    assert decided(burning, seasoned(observation(demand=demand(0.2)))).direction is Direction.HOLD


def test_a_burn_while_replicas_start_adds_nothing() -> None:
    burning = observation(demand=demand(1.5), pools=(view(ready=1, starting=1),), attainment=attainment(0, 100))
    assert decided(burning, seasoned(burning, 30)).direction is Direction.HOLD


def test_a_burn_over_too_few_requests_adds_nothing() -> None:
    burning = observation(demand=demand(0.7), attainment=attainment(5, 4))
    assert decided(burning, seasoned(observation(demand=demand(0.7)))).direction is Direction.HOLD


def test_attainment_never_takes_away() -> None:
    perfect = observation(demand=demand(1.5), pools=(view(ready=2),), attainment=attainment(10_000, 0))
    assert decided(perfect, seasoned(perfect)).replicas == 2


def test_what_attainment_taught_holds_against_the_next_scale_down() -> None:
    burning = observation(demand=demand(0.68), attainment=attainment(80, 20))
    _, state = decide(burning, seasoned(observation(demand=demand(0.68))))
    calm = observation(now=NOW + 600, demand=demand(0.68), pools=(view(ready=2),))
    assert decided(calm, seasoned(calm, 500, state)).replicas == 2
    untaught = seasoned(calm, 500)
    assert decided(calm, untaught).replicas == 1


def offline(queued: int, oldest_s: float, left_s: float, rate: float = 0.0) -> ClassSignals:
    """`queued` requests without a promise, a tenth of a replica-second each; more arrive at `rate` replica-s/s."""
    return ClassSignals(
        RequestClass.OFFLINE,
        flows(rate),
        output_tokens=float(OUTPUT),
        queued=queued,
        queued_tokens=queued * PROMPT,
        oldest_s=oldest_s,
        deadline_s=left_s,
    )


def beside(other: ClassSignals, ready: int = 2) -> Observation:
    """Interactive demand that needs one replica, with another class beside it."""
    interactive = demand(0.5)
    return observation(demand=replace(interactive, classes=(*interactive.classes, other)), pools=(view(ready=ready),))


@pytest.mark.parametrize("left_s", [3590.0, 150.0, 0.0])
def test_work_without_a_promise_buys_nothing_however_near_its_deadline_is(left_s: float) -> None:
    decision = decided(beside(offline(queued=3000, oldest_s=10.0, left_s=left_s, rate=5.0)))
    assert (decision.replicas, decision.deferred) == (2, (RequestClass.OFFLINE,))


def test_work_without_a_promise_buys_nothing_where_it_waits_in_workers() -> None:
    waiting = (RequestClass.OFFLINE, 300, 300 * PROMPT)
    full = load("ready-0", waiting=300, queued_tokens=300 * PROMPT, by_class=(waiting,))
    seen = beside(offline(queued=30, oldest_s=10.0, left_s=3590.0), ready=1)
    assert decided(replace(seen, pools=(view(loads=(full,)),))).replicas == 1
    untold = replace(full, by_class=())
    assert decided(replace(seen, pools=(view(loads=(untold,)),))).replicas > 1


def test_every_class_without_a_promise_that_waits_is_deferred() -> None:
    flood = offline(queued=3000, oldest_s=3400.0, left_s=150.0)
    batch = replace(offline(queued=30, oldest_s=0.0, left_s=3600.0), name=RequestClass.BATCH)
    seen = beside(flood)
    demanded = replace(seen.demand, classes=(*seen.demand.classes, batch))
    assert decided(replace(seen, demand=demanded)).deferred == (RequestClass.OFFLINE, RequestClass.BATCH)


def test_nothing_is_deferred_without_queued_requests_or_by_policies_that_count_every_request() -> None:
    flood = offline(queued=3000, oldest_s=10.0, left_s=3590.0)
    assert decided(beside(replace(flood, queued=0, queued_tokens=0))).deferred == ()
    seen = beside(flood)
    assert decided(replace(seen, goal=replace(seen.goal, policy="queue"))).deferred == ()


def test_a_class_whose_request_starts_the_first_replica_is_not_deferred() -> None:
    state = seasoned(observation())
    flood = offline(queued=30, oldest_s=10.0, left_s=3590.0)
    asleep = observation(goal=goal(pools=(pool(min=0),)), pools=(PoolStatus("main", 0),))
    decision = decided(replace(asleep, demand=replace(asleep.demand, classes=(flood,))), state)
    assert (decision.reason, decision.deferred) == (ScaleReason.SCALE_FROM_ZERO, ())


UNKNOWN = StepTime(base=0.0, prefill=0.0)


def blind(open_requests: int, ready: int = 1) -> Observation:
    """No replica knows its step time; each has 64 slots."""
    loads = tuple(load(f"ready-{n}", step_time=UNKNOWN) for n in range(ready))
    return observation(demand=demand(5.0, in_flight=open_requests), pools=(view(ready=ready, loads=loads),))


def test_without_a_step_time_open_requests_decide() -> None:
    decision = decided(blind(100))
    assert (decision.replicas, decision.reason) == (3, ScaleReason.DEMAND)
    why = "no replica has reported its step time yet, so open requests decide: at 70% of the slots they need 3"
    assert decision.sentence == f"1→3: {why}; 1 ready"


def test_without_a_step_time_no_replica_leaves() -> None:
    calm = blind(1, ready=3)
    decision = decided(calm, seasoned(calm))
    assert (decision.replicas, decision.reason) == (3, ScaleReason.MISSING_DATA)


def test_where_replicas_do_far_less_than_the_model_says_open_requests_must_fit_too() -> None:
    seen = observation(demand=demand(0.5, in_flight=100), pools=(view(ready=2),))
    distrusted = replace(seasoned(seen), own=DemandHistories((DemandHistory("both", derate=0.5, derate_at=NOW),)))
    _, state = decide(seen, distrusted)
    decision, _ = decide(replace(seen, now=NOW + 5), state)
    assert (decision.replicas, decided(seen, seasoned(seen)).replicas) == (3, 1)
    assert decision.sentence.startswith("2→3: demand 0.50 replica-s/s may need a capacity of ")
    assert "and open requests 3 replicas: the model overrates replicas" in decision.sentence


def test_what_a_rejected_number_costs_includes_the_other_roles() -> None:
    step = STEP.model_copy(update={"base": 0.064})
    pools = (pool(name="prefill", role="prefill"), pool(name="decode", role="decode", dollars_per_hour=1.5))
    views = tuple(view(name=name, loads=(load("ready-0", step_time=step),)) for name in ("prefill", "decode"))
    wanted = goal(pools=pools, step_tokens=1_000_000)
    (rejected,) = decided(observation(goal=wanted, demand=demand(1.2), pools=views)).rejected
    assert (rejected.replicas, rejected.dollars_per_hour) == (2, 5.5)


def test_without_a_price_a_rejected_number_has_no_cost() -> None:
    free = goal(pools=(pool(dollars_per_hour=0.0),))
    assert decided(observation(goal=free, demand=demand(3.0))).rejected[0].sentence == "3: capacity 2.91"


def test_work_without_a_promise_keeps_no_replica_once_its_deadline_is_far() -> None:
    seen = beside(offline(queued=600, oldest_s=0.0, left_s=36_000.0))
    assert decided(seen, seasoned(seen)).direction is Direction.DOWN


@given(queued=st.integers(0, 100_000), oldest_s=st.floats(0, 7200), left_s=st.floats(-10, 7200), rate=st.floats(0, 10))
def test_more_time_never_buys_more(queued: int, oldest_s: float, left_s: float, rate: float) -> None:
    seen = [beside(offline(queued, oldest_s, left, rate)) for left in (left_s, left_s + 60)]
    sooner, later = (decided(one).replicas for one in seen)
    assert later <= sooner


def test_a_speed_once_learned_serves_when_no_replica_is_there_to_report_it() -> None:
    state = seasoned(observation())
    waiting = demand(3.0, held=30, queued=30, queued_tokens=30 * PROMPT)
    asleep = observation(goal=goal(pools=(pool(min=0),)), demand=waiting, pools=(PoolStatus("main", 0),))
    assert decided(asleep, state).replicas == 5  # 3 replica-s, and 3 a second for 55 s: each does 34 in its 35 s


def test_without_any_known_speed_nothing_is_weighed() -> None:
    silent = observation(pools=(view(loads=()),), demand=demand(3.0))
    decision = decided(silent)
    assert (decision.direction, decision.reason) == (Direction.HOLD, ScaleReason.MISSING_DATA)


def test_while_the_first_replica_starts_it_is_waited_for() -> None:
    decision = decided(observation(pools=(view(ready=0, starting=1),), demand=demand(3.0)))
    assert (decision.reason, decision.replicas) == (ScaleReason.PENDING, 1)
    assert "1 starting (next in 15 s)" in decision.sentence


def test_a_start_of_less_than_a_second_is_reported_as_no_longer_than_that() -> None:
    young = tuple(Replica(f"new-{n}", ReplicaState.STARTING, 2.5) for n in range(2))
    quick = observation(goal=goal(start_prior_s=3.0), pools=(PoolStatus("main", 2, young),), demand=demand(1.0))
    assert "0 ready, 2 starting (next within 1 s)" in decided(quick).sentence


def test_the_cheaper_pool_is_filled_first_and_the_dearer_is_emptied_first() -> None:
    pools = (pool(name="dear", dollars_per_hour=9.0, min=0), pool(name="cheap", dollars_per_hour=1.0, min=0, max=3))
    views = (view(ready=1, name="dear"), view(ready=1, name="cheap"))
    wish = goal(pools=pools)
    up = decided(observation(goal=wish, demand=demand(4.0), pools=views))
    assert {row.name: row.replicas for row in up.pools} == {"cheap": 3, "dear": 2}
    calm = observation(goal=wish, demand=demand(0.3), pools=views)
    down = decided(calm, seasoned(calm))
    assert {row.name: row.replicas for row in down.pools} == {"cheap": 1, "dear": 0}


def test_a_slower_pool_counts_for_less() -> None:
    slow = load("ready-0", step_time=STEP.model_copy(update={"prefill": 50e-6}))
    pools = (pool(name="fast"), pool(name="slow", max=2))
    views = (view(name="fast"), view(name="slow", loads=(slow,)))
    decision = decided(observation(goal=goal(pools=pools), demand=demand(1.8), pools=views))
    assert {row.name: row.replicas for row in decision.pools} == {"fast": 2, "slow": 1}


def test_prefill_and_decode_are_sized_by_their_own_half() -> None:
    step = STEP.model_copy(update={"base": 0.064})
    pools = (pool(name="prefill", role="prefill"), pool(name="decode", role="decode"))
    views = tuple(view(name=name, loads=(load("ready-0", step_time=step),)) for name in ("prefill", "decode"))
    wanted = goal(pools=pools, step_tokens=1_000_000)
    decision = decided(observation(goal=wanted, demand=demand(1.2), pools=views))
    assert {row.name: row.replicas for row in decision.pools} == {"prefill": 2, "decode": 2}
    short = demand(1.2, output_tokens=10.0)
    decision = decided(observation(goal=wanted, demand=short, pools=views))
    assert {row.name: row.replicas for row in decision.pools} == {"prefill": 2, "decode": 1}


def test_starts_are_learned_from_what_is_observed() -> None:
    state = State()
    for age in (1.0, 31.0):
        ready = ReplicaState.READY if age > 30 else ReplicaState.STARTING
        replicas = (Replica("a", ReplicaState.READY, 99.0), Replica("b", ready, age))
        seen = observation(now=NOW + age, pools=(PoolStatus("main", 2, replicas, (load("a"),)),))
        _, state = decide(seen, state)
    assert [sample.seconds for sample in state.learned.starts] == [31.0]
    assert decided(observation(now=NOW + 32), state).reading.start_s == 31.0


rates = st.floats(0.0, 8.0)


@given(rates, st.integers(1, 8), st.integers(0, 4), st.integers(0, 400))
def test_the_bounds_are_never_left(rate: float, ready: int, starting: int, queued: int) -> None:
    bounded = goal(pools=(pool(min=2, max=5),))
    seen = observation(
        goal=bounded, demand=demand(rate, queued=queued, queued_tokens=queued * 4000), pools=(view(ready, starting),)
    )
    decision = decided(seen, seasoned(seen, 60))
    assert 2 <= decision.replicas <= 5
    assert (decision.limit is ScaleLimit.MAX) <= (decision.replicas == 5)


@given(rates, st.floats(0.0, 4.0), st.integers(1, 6), st.integers(0, 3), st.integers(0, 200))
def test_more_demand_never_means_fewer_replicas(
    rate: float, more: float, ready: int, starting: int, queued: int
) -> None:
    pools = (view(ready, starting),)
    less = observation(demand=demand(rate, queued=queued, queued_tokens=queued * 4000), pools=pools)
    greater = observation(demand=demand(rate + more, queued=queued, queued_tokens=queued * 4000), pools=pools)
    assert decided(greater, seasoned(greater, 60)).replicas >= decided(less, seasoned(less, 60)).replicas


@given(rates, st.integers(1, 8), st.integers(0, 4))
def test_what_is_pending_is_never_ordered_twice(rate: float, ready: int, starting: int) -> None:
    """Carrying a decision out and deciding again at the same moment orders nothing more."""
    seen = observation(demand=demand(rate), pools=(view(ready, starting),))
    first, state = decide(seen, State())
    ordered = replace(seen.pools[0], desired=first.replicas)
    second, _ = decide(replace(seen, pools=(ordered,)), state)
    assert second.replicas == first.replicas


@given(rates, st.integers(1, 8), st.integers(1, 2000), st.booleans())
def test_nothing_is_released_under_a_backlog(rate: float, ready: int, queued: int, held: bool) -> None:
    waiting = demand(rate, queued=queued, held=queued if held else 0, queued_tokens=queued * 4000)
    seen = observation(demand=waiting, pools=(view(ready),))
    decision = decided(seen, seasoned(seen, 60))
    if held or queued * 0.1 > ready * 0.5:
        assert decision.replicas >= ready


@given(rates, st.integers(1, 10))
@settings(max_examples=15)
def test_constant_demand_comes_to_rest(rate: float, start: int) -> None:
    """From any size, with starts of 20 s and drains of 10 s: after ten minutes nothing moves any more."""
    ages = [900.0] * start
    state, moves = State(), []
    for second in range(0, 1500, 5):
        ages = [age + 5 for age in ages]
        replicas = tuple(
            Replica(f"r{n}", ReplicaState.READY if age >= 20 else ReplicaState.STARTING, age)
            for n, age in enumerate(ages)
        )
        loads = tuple(load(r.name) for r in replicas if r.state is ReplicaState.READY)
        seen = observation(
            now=NOW + second, demand=demand(rate), pools=(PoolStatus("main", len(ages), replicas, loads),)
        )
        decision, state = decide(seen, state)
        if decision.direction is not Direction.HOLD:
            moves.append(second)
        ages = (ages + [0.0] * decision.replicas)[: decision.replicas]
    assert not [second for second in moves if second > 900]
    assert len(moves) <= 12

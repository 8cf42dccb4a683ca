"""What is learned between decisions: drains and peaks; and that all of it stays small."""

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.autoscaler.factories import NOW, demand, goal, load, observation, pool, seasoned, view

from paceline_autoscaler.model.history import (
    DemandSample,
    drain_s,
    history_of,
    learn,
    merge_states,
    peak,
    record_demand,
    with_history,
    worth_storing,
)
from paceline_autoscaler.output.scale_writer import STATE_LIMIT, state_json
from paceline_autoscaler.policies import decide
from paceline_autoscaler.types import (
    BlockedPool,
    DemandHistory,
    DemandPeak,
    KnownNode,
    LearnedState,
    PoolStatus,
    Replica,
    StartKind,
    StartSample,
)
from paceline_core.registry.enums import ReplicaState
from paceline_core.wire import StepTime

READY, STARTING, DRAINING = ReplicaState.READY, ReplicaState.STARTING, ReplicaState.DRAINING


def test_a_drain_takes_until_the_replica_is_gone() -> None:
    known, leaving = LearnedState(), Replica("a", DRAINING, 9.0)
    for at, replicas in ((0, (leaving,)), (4, (leaving,)), (9, ())):
        known = learn(observation(now=NOW + at, pools=(PoolStatus("main", 1, replicas),)), known)
    assert known.drains_s == (9.0,)
    assert drain_s(goal(), known) == 9.0
    assert drain_s(goal(), LearnedState(drains_s=(300.0,))) == 30.0


def rising(memory: DemandHistory, at: float, rate: float, window: float = 60.0) -> DemandHistory:
    return record_demand(memory, DemandSample(at, rate, 1, complete=True), window)


@given(st.lists(st.tuples(st.floats(0.1, 20), st.floats(0, 10)), min_size=1, max_size=80))
def test_the_peak_is_the_highest_rate_of_the_window_and_never_less(steps: list[tuple[float, float]]) -> None:
    memory, now, past = DemandHistory("both"), NOW, []
    for pause, rate in steps:
        now += pause
        past.append((now, rate))
        memory = rising(memory, now, rate)
        highest = max(r for at, r in past if at >= now - 60)
        grace = max(r for at, r in past if at >= now - 62)
        assert highest <= peak(memory) <= grace
        assert len(memory.peaks) <= 34


def test_supply_is_as_old_as_its_last_change() -> None:
    memory = record_demand(DemandHistory("both"), DemandSample(NOW, 1.0, 2, complete=True), 60)
    memory = record_demand(memory, DemandSample(NOW + 50, 1.0, 2, complete=True), 60)
    assert memory.supply_since == NOW
    memory = record_demand(memory, DemandSample(NOW + 55, 1.0, 3, complete=True), 60)
    assert memory.supply_since == NOW + 55


def test_a_lesson_of_attainment_fades_over_hours() -> None:
    memory = DemandHistory("both", derate=0.6, derate_at=NOW)
    assert rising(memory, NOW + 60, 1.0).derate < 0.61
    assert 0.8 < rising(memory, NOW + 2 * 3600, 1.0).derate < 0.9


def test_the_largest_state_fits_its_config_map() -> None:
    roles = ("both", "prefill", "decode")
    pools = tuple(pool(name=f"pool{n:011d}", role=roles[n % 3]) for n in range(8))
    names = [f"a-service-of-forty-characters-in-its-name-pool{n:08d}-abcde" for n in range(300)]
    states = (READY, STARTING, DRAINING)
    replicas = tuple(Replica(name, states[n % 3], 123.456789) for n, name in enumerate(names))
    views = tuple(PoolStatus(p.name, 300, replicas if n == 0 else (), (load("x"),)) for n, p in enumerate(pools))
    starts = tuple(StartSample(p.name, kind, 123.456789012) for p in pools for kind in StartKind for _ in range(8))
    nodes = tuple(
        KnownNode(p.name, f"ip-10-100-100-{n:03d}.eu-central-1.compute.internal", NOW) for p in pools for n in range(3)
    )
    blocked = tuple(
        BlockedPool(p.name, NOW, 5, f"replicas {', '.join(names[:3])} and others are not ready after 10m")
        for p in pools
    )
    state = LearnedState(starts=starts, nodes=nodes, blocked=blocked, drains_s=(123.456789012,) * 8)
    for step in range(100):
        moment = observation(now=NOW + 2 * step, goal=goal(pools=pools), demand=demand(9.0 - step / 11.3), pools=views)
        _, state = decide(replace(moment), state)
    assert len(history_of(state, "both").peaks) > 25
    assert len(state_json(state)) <= STATE_LIMIT


def test_a_state_that_is_read_late_is_joined_with_what_was_learned_meanwhile() -> None:
    old = DemandHistory("both", (DemandPeak(NOW, 9.0), DemandPeak(NOW + 5, 1.0)), derate=0.6, derate_at=NOW)
    new = DemandHistory(
        "both", (DemandPeak(NOW + 60, 3.0),), complete_since=NOW + 50, ready=2, derate=1.0, derate_at=NOW + 60
    )
    slow, fast = (StartSample("main", StartKind.COLD, seconds) for seconds in (9.0, 5.0))
    stored = LearnedState(
        "slo",
        (slow,),
        starting=(("a", NOW), ("gone", NOW)),
        output_tokens=70.0,
        memories=(old,),
        at=NOW,
    )
    since = LearnedState("slo", (fast,), starting=(("a", NOW + 40), ("b", NOW + 50)), memories=(new,), at=NOW + 60)
    both = merge_states(stored, since)
    assert [sample.seconds for sample in both.starts] == [9.0, 5.0]
    assert both.starting == (("a", NOW), ("b", NOW + 50))
    assert (both.output_tokens, both.at) == (70.0, NOW + 60)
    memory = history_of(both, "both")
    assert memory.peaks == (DemandPeak(NOW, 9.0), DemandPeak(NOW + 60, 3.0))
    assert (memory.complete_since, memory.ready) == (NOW + 50, 2)
    assert 0.6 < memory.derate < 0.61
    assert merge_states(stored, LearnedState()) == stored
    assert merge_states(LearnedState(), since) == since
    assert history_of(merge_states(replace(stored, policy="queue"), since), "both") == new


def known_for(seconds: float = 600.0, **changes: Any) -> LearnedState:
    return seasoned(observation(**changes), seconds)


def later(state: LearnedState, seconds: float, **changes: Any) -> LearnedState:
    """The state after so long of the same, a pass each five seconds."""
    return seasoned(observation(**{"now": NOW + seconds, **changes}), seconds, state)


def test_ten_minutes_of_the_same_are_nothing_to_store() -> None:
    stored = known_for()
    assert not worth_storing(stored, stored)
    assert not worth_storing(stored, later(stored, 600))


def test_neither_a_peak_nor_a_pause_of_the_clients_is_worth_storing() -> None:
    """After a crash conclusions from both are discarded anyway."""
    stored = known_for()
    busier, idle = later(stored, 60, demand=demand(0.7)), later(stored, 60, demand=demand(0.0))
    assert peak(history_of(busier, "both")) > peak(history_of(stored, "both"))
    assert idle.idle_since is not None
    assert not worth_storing(stored, busier)
    assert not worth_storing(stored, idle)


def test_what_a_crash_must_not_lose_is_worth_storing() -> None:
    stored = known_for()
    history = history_of(stored, "both")
    slower = replace(stored.speeds[0], step_time=replaced(stored.speeds[0].step_time, 1.06))
    news = {
        "another supply": later(stored, 10, pools=(view(ready=2),)),
        "a start": replace(stored, starts=(*stored.starts, StartSample("main", StartKind.COLD, 20.0))),
        "a drain": replace(stored, drains_s=(9.0,)),
        "a replica that starts": replace(stored, starting=(("a", NOW),)),
        "a replica without a report": replace(stored, silent=(("a", NOW),)),
        "another policy": replace(stored, policy="queue"),
        "another speed": replace(stored, speeds=(slower,)),
        "a new pool": replace(stored, speeds=(*stored.speeds, replace(slower, pool="spot"))),
        "a derate": with_history(stored, replace(history, derate=0.8)),
    }
    assert [name for name, state in news.items() if not worth_storing(stored, state)] == []


def test_a_speed_that_wavers_and_a_derate_that_recovers_are_no_news() -> None:
    stored = with_history(known_for(), replace(history_of(known_for(), "both"), derate=0.8, derate_at=NOW))
    wavering = replace(stored.speeds[0], step_time=replaced(stored.speeds[0].step_time, 1.04))
    assert not worth_storing(stored, replace(stored, speeds=(wavering,)))
    assert not worth_storing(stored, later(stored, 3600))


def replaced(step: StepTime, factor: float) -> StepTime:
    return step.model_copy(update={"prefill": step.prefill * factor})

"""What is learned between decisions, and that all of it stays small."""

from dataclasses import replace
from typing import Any

import pytest
from tests.autoscaler.factories import NOW, decide, demand, goal, load, observation, pool, seasoned, view

from paceline_autoscaler.model.demand_history import DemandHistories, DemandHistory, DemandPeak
from paceline_autoscaler.model.history import drain_s, learn, merge_states, worth_storing
from paceline_autoscaler.output.scale_writer import STATE_LIMIT, state_json
from paceline_autoscaler.state import BlockedPool, KnownNode, LearnedState, StartSample, State
from paceline_autoscaler.types import CompletedRequests, PoolStatus, Replica, StartKind
from paceline_core.registry.enums import ReplicaState
from paceline_core.wire import StepTime

READY, STARTING, DRAINING = ReplicaState.READY, ReplicaState.STARTING, ReplicaState.DRAINING


def test_a_drain_takes_until_the_replica_is_gone() -> None:
    known, leaving = LearnedState(), Replica("a", DRAINING, 9.0)
    for at, replicas in ((0, (leaving,)), (4, (leaving,)), (9, ())):
        seen = observation(now=NOW + at, pools=(PoolStatus("main", 1, replicas),))
        known = learn(seen, State(learned=known)).learned
    assert known.drains_s == (9.0,)
    assert drain_s(goal(), known) == 9.0
    assert drain_s(goal(), LearnedState(drains_s=(300.0,))) == 30.0


def test_the_lengths_of_completed_requests_are_learned_and_old_ones_fade() -> None:
    short, long = (CompletedRequests(60, 60 * size, 0, 60, 60 * size**2 / 2, 60 * size) for size in (100.0, 1000.0))
    known, means = LearnedState(), []
    for second in range(0, 2400, 5):
        seen = observation(now=NOW + second, demand=demand(1.0, completed=short if second < 1200 else long))
        known = learn(seen, State(learned=known)).learned
        assert known.completed is not None
        means.append(known.completed.prompt_tokens / known.completed.requests)
    assert means[239] == pytest.approx(100)
    assert 600 < means[240 + 60] < 750  # a mean age has passed
    assert means[-1] > 970
    silent = observation(now=NOW + 2400, demand=demand(0.0))
    assert learn(silent, State(learned=known)).learned.completed == known.completed


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
    learned = LearnedState(starts=starts, nodes=nodes, blocked=blocked, drains_s=(123.456789012,) * 8)
    state = State("slo", learned)
    for step in range(100):
        moment = observation(now=NOW + 2 * step, goal=goal(pools=pools), demand=demand(9.0 - step / 11.3), pools=views)
        _, state = decide(replace(moment), state)
    assert len(own(state).of("both").peaks) > 25
    assert len(state_json(state)) <= STATE_LIMIT


def test_a_state_that_is_read_late_is_joined_with_what_was_learned_meanwhile() -> None:
    old = DemandHistory("both", (DemandPeak(NOW, 9.0), DemandPeak(NOW + 5, 1.0)), derate=0.6, derate_at=NOW)
    new = DemandHistory(
        "both", (DemandPeak(NOW + 60, 3.0),), complete_since=NOW + 50, ready=2, derate=1.0, derate_at=NOW + 60
    )
    slow, fast = (StartSample("main", StartKind.COLD, seconds) for seconds in (9.0, 5.0))
    stored = State(
        "slo",
        LearnedState((slow,), starting=(("a", NOW), ("gone", NOW)), output_tokens=70.0, at=NOW),
        DemandHistories((old,)),
    )
    since = State(
        "slo",
        LearnedState((fast,), starting=(("a", NOW + 40), ("b", NOW + 50)), at=NOW + 60),
        DemandHistories((new,)),
    )
    both = merge_states(stored, since)
    assert [sample.seconds for sample in both.learned.starts] == [9.0, 5.0]
    assert both.learned.starting == (("a", NOW), ("b", NOW + 50))
    assert (both.learned.output_tokens, both.learned.at) == (70.0, NOW + 60)
    history = own(both).of("both")
    assert history.peaks == (DemandPeak(NOW, 9.0), DemandPeak(NOW + 60, 3.0))
    assert (history.complete_since, history.ready) == (NOW + 50, 2)
    assert 0.6 < history.derate < 0.61
    assert merge_states(stored, State()) == stored
    assert merge_states(State(), since) == since
    assert own(merge_states(replace(stored, policy="queue"), since)).of("both") == new


def own(state: State) -> DemandHistories:
    assert isinstance(state.own, DemandHistories)
    return state.own


def known_for(seconds: float = 600.0, **changes: Any) -> State:
    return seasoned(observation(**changes), seconds)


def later(state: State, seconds: float, **changes: Any) -> State:
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
    assert own(busier).of("both").peak > own(stored).of("both").peak
    assert idle.learned.idle_since is not None
    assert not worth_storing(stored, busier)
    assert not worth_storing(stored, idle)


def test_what_a_crash_must_not_lose_is_worth_storing() -> None:
    stored = known_for()
    learned = stored.learned
    slower = replace(learned.speeds[0], step_time=replaced(learned.speeds[0].step_time, 1.06))
    news = {
        "a start": replace(learned, starts=(*learned.starts, StartSample("main", StartKind.COLD, 20.0))),
        "a drain": replace(learned, drains_s=(9.0,)),
        "a replica that starts": replace(learned, starting=(("a", NOW),)),
        "a replica without a report": replace(learned, silent=(("a", NOW),)),
        "another speed": replace(learned, speeds=(slower,)),
        "a new pool": replace(learned, speeds=(*learned.speeds, replace(slower, pool="spot"))),
    }
    states = {name: replace(stored, learned=new) for name, new in news.items()} | {
        "another supply": later(stored, 10, pools=(view(ready=2),)),
        "another policy": replace(stored, policy="queue"),
        "a derate": derated(stored),
    }
    assert [name for name, state in states.items() if not worth_storing(stored, state)] == []


def derated(state: State) -> State:
    histories = own(state)
    return replace(state, own=histories.having(replace(histories.of("both"), derate=0.8, derate_at=NOW)))


def test_a_speed_that_wavers_and_a_derate_that_recovers_are_no_news() -> None:
    stored = derated(known_for())
    speed = stored.learned.speeds[0]
    wavering = replace(speed, step_time=replaced(speed.step_time, 1.04))
    assert not worth_storing(stored, replace(stored, learned=replace(stored.learned, speeds=(wavering,))))
    assert not worth_storing(stored, later(stored, 3600))


def replaced(step: StepTime, factor: float) -> StepTime:
    return step.model_copy(update={"prefill": step.prefill * factor})

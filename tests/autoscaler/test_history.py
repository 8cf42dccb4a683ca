"""What is learned between decisions: starts, drains, peaks; and that all of it stays small."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from tests.autoscaler.factories import NOW, demand, goal, load, observation, pool

from paceline_autoscaler.model.history import (
    DemandSample,
    drain_s,
    history_of,
    learn,
    merge_states,
    peak,
    record_demand,
    start_s,
)
from paceline_autoscaler.policies import decide
from paceline_autoscaler.service_scaler import STATE_LIMIT, state_json
from paceline_autoscaler.types import DemandHistory, DemandPeak, LearnedState, PoolStatus, Replica
from paceline_core.registry.enums import ReplicaState

READY, STARTING, DRAINING = ReplicaState.READY, ReplicaState.STARTING, ReplicaState.DRAINING


def after(*moments: tuple[float, tuple[tuple[str, ReplicaState, float], ...]], lost: bool = False) -> LearnedState:
    """The state after these moments: (seconds, replicas as name, state and age)."""
    known = LearnedState()
    for at, rows in moments:
        replicas = tuple(Replica(*row) for row in rows)
        known = learn(observation(now=NOW + at, pools=(PoolStatus("main", 1, replicas),), endpoints_lost=lost), known)
    return known


def test_a_start_takes_from_creation_to_readiness() -> None:
    known = after((0, (("a", STARTING, 3.0),)), (22, (("a", READY, 25.0),)))
    assert known.starts_s == (25.0,)


def test_one_that_was_ready_when_first_observed_teaches_nothing() -> None:
    assert after((0, (("a", READY, 300.0),)), (5, (("a", READY, 305.0),))).starts_s == ()


def test_a_start_faster_than_the_passes_took_no_longer_than_its_age() -> None:
    known = after((0, ()), (5, (("a", READY, 4.0),)), (10, (("a", READY, 9.0),)))
    assert known.starts_s == (4.0,)
    assert start_s(goal(), known) == 4.0
    asleep = learn(observation(now=NOW + 300, pools=(PoolStatus("main", 0),)), known)
    woken = (Replica("a", READY, 3.0),)
    awake = learn(observation(now=NOW + 305, pools=(PoolStatus("main", 1, woken),)), asleep)
    assert start_s(goal(), awake) <= 4.0


def test_a_restart_counts_from_when_it_stopped_being_ready() -> None:
    known = after((0, (("a", READY, 900.0),)), (5, (("a", STARTING, 905.0),)), (12, (("a", READY, 912.0),)))
    assert known.starts_s == (7.0,)


def test_a_drain_takes_until_the_replica_is_gone() -> None:
    known = after((0, (("a", DRAINING, 9.0),)), (4, (("a", DRAINING, 13.0),)), (9, ()))
    assert known.drains_s == (9.0,)


def test_nothing_is_learned_from_a_list_that_is_not_current() -> None:
    assert after((0, (("a", STARTING, 3.0),)), (9, (("a", READY, 12.0),)), lost=True) == after((9, ()), lost=True)


def test_the_upper_quartile_of_the_last_eight_counts() -> None:
    known = LearnedState(starts_s=(5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 90.0))
    assert start_s(goal(), known) == 10.0
    assert start_s(goal(), LearnedState()) == 20.0
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
    state = LearnedState(starts_s=(123.456789012,) * 8, drains_s=(123.456789012,) * 8)
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
    stored = LearnedState(
        "slo", (9.0,), starting=(("a", NOW), ("gone", NOW)), output_tokens=70.0, memories=(old,), at=NOW
    )
    since = LearnedState("slo", (5.0,), starting=(("a", NOW + 40), ("b", NOW + 50)), memories=(new,), at=NOW + 60)
    both = merge_states(stored, since)
    assert (both.starts_s, both.starting) == ((9.0, 5.0), (("a", NOW), ("b", NOW + 50)))
    assert (both.output_tokens, both.at) == (70.0, NOW + 60)
    memory = history_of(both, "both")
    assert memory.peaks == (DemandPeak(NOW, 9.0), DemandPeak(NOW + 60, 3.0))
    assert (memory.complete_since, memory.ready) == (NOW + 50, 2)
    assert 0.6 < memory.derate < 0.61
    assert merge_states(stored, LearnedState()) == stored
    assert merge_states(LearnedState(), since) == since
    assert history_of(merge_states(replace(stored, policy="queue"), since), "both") == new

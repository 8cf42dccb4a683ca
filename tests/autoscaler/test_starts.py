"""How long starts take, by pool and kind; when one counts as absent; and pools without capacity."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.autoscaler.factories import NOW, goal, observation, pool

from paceline_autoscaler.model.history import learn
from paceline_autoscaler.model.starts import PendingStart, blocked_pools, pending_starts, start_s
from paceline_autoscaler.state import LearnedState, StartSample, State
from paceline_autoscaler.types import PoolStatus, Replica, StartKind
from paceline_core.kube import StartStage
from paceline_core.registry.enums import ReplicaState

READY, STARTING = ReplicaState.READY, ReplicaState.STARTING
COLD, CACHED = StartKind.COLD, StartKind.CACHED
Rows = tuple[tuple[str, ReplicaState, float, str], ...]
TWO_POOLS = goal(pools=(pool(name="main"), pool(name="spot")))


def after(
    *moments: tuple[float, Rows], known: LearnedState | None = None, desired: int = 1, lost: bool = False
) -> LearnedState:
    """The state after these moments: (seconds, replicas as name, state, age and node)."""
    state = known or LearnedState()
    for at, rows in moments:
        status = PoolStatus("main", desired, tuple(Replica(*row) for row in rows))
        seen = observation(now=NOW + at, pools=(status,), endpoints_lost=lost)
        state = learn(seen, State(learned=state)).learned
    return state


def seconds(state: LearnedState) -> list[float]:
    return [sample.seconds for sample in state.starts]


def test_a_start_takes_from_creation_to_readiness() -> None:
    assert seconds(after((0, (("a", STARTING, 3.0, "n1"),)), (22, (("a", READY, 25.0, "n1"),)))) == [25.0]


def test_one_that_was_ready_when_first_observed_teaches_nothing() -> None:
    assert seconds(after((0, (("a", READY, 300.0, "n1"),)), (5, (("a", READY, 305.0, "n1"),)))) == []


def test_a_start_faster_than_the_passes_took_no_longer_than_its_age() -> None:
    known = after((0, ()), (5, (("a", READY, 4.0, "n1"),)), (10, (("a", READY, 9.0, "n1"),)))
    assert seconds(known) == [4.0]
    assert start_s(goal(), known, "main") == 4.0
    awake = after((300, ()), (305, (("b", READY, 3.0, "n1"),)), known=known)
    assert start_s(goal(), awake, "main") <= 4.0


def test_a_restart_counts_from_when_it_stopped_being_ready_and_is_cached() -> None:
    known = after(
        (0, (("a", READY, 900.0, "n1"),)), (5, (("a", STARTING, 905.0, "n1"),)), (12, (("a", READY, 912.0, "n1"),))
    )
    assert known.starts == (StartSample("main", CACHED, 7.0),)


def test_nothing_is_learned_from_a_list_that_is_not_current() -> None:
    rows = (0, (("a", STARTING, 3.0, "n1"),)), (9, (("a", READY, 12.0, "n1"),))
    assert after(*rows, lost=True) == after((9, ()), lost=True)


def test_a_start_is_cached_where_the_pool_has_run_before_it_began() -> None:
    state = after(
        (0, (("a", STARTING, 0.0, "n1"), ("b", STARTING, 0.0, "n1"))),
        (40, (("a", READY, 40.0, "n1"), ("b", STARTING, 40.0, "n1"))),
        (45, (("b", READY, 45.0, "n1"),)),
        (60, (("c", STARTING, 0.0, "n1"),)),
        (70, (("c", READY, 10.0, "n1"),)),
    )
    assert [(sample.kind, sample.seconds) for sample in state.starts] == [(COLD, 40.0), (COLD, 45.0), (CACHED, 10.0)]


def test_each_pool_and_kind_has_its_own_time() -> None:
    cold = tuple(StartSample("main", COLD, 100.0 + n) for n in range(8))
    known = LearnedState(starts=(*cold, StartSample("main", CACHED, 10.0), StartSample("spot", COLD, 50.0)))
    assert start_s(TWO_POOLS, known, "main", COLD) == 105.0
    assert start_s(TWO_POOLS, known, "main", CACHED) == 10.0
    assert start_s(TWO_POOLS, known, "spot") == 50.0
    assert start_s(TWO_POOLS, known, "spot", CACHED) == 50.0
    assert start_s(TWO_POOLS, LearnedState(), "main") == 20.0


def test_a_kind_that_was_never_seen_is_not_faster_than_the_prior() -> None:
    assert start_s(goal(), LearnedState(starts=(StartSample("main", CACHED, 4.0),)), "main", COLD) == 20.0


def test_the_upper_quartile_of_the_last_eight_counts() -> None:
    times = (5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 90.0)
    assert start_s(goal(), LearnedState(starts=tuple(StartSample("main", COLD, t) for t in times)), "main") == 10.0


def test_a_start_of_an_hour_counts_as_ten_times_the_prior() -> None:
    known = after((0, (("a", STARTING, 0.0, "n1"),)), (3600, (("a", READY, 3600.0, "n1"),)))
    assert seconds(known) == [200.0]


@given(st.floats(1, 600), st.lists(st.floats(0, 3600), min_size=2, max_size=8))
def test_a_start_is_expected_later_the_longer_it_is_overdue(usual_s: float, ages: list[float]) -> None:
    overdue = [PendingStart("a", usual_s + age, usual_s).eta_s for age in sorted(ages)]
    assert overdue == sorted(overdue)
    assert all(eta >= usual_s / 4 for eta in overdue)


def stuck(at: float, known: LearnedState | None = None) -> LearnedState:
    """The state when one of two replicas of a usual 20 s has been starting for `at` seconds."""
    rows = (("a", READY, 900.0 + at, "n1"), ("b", STARTING, at, ""))
    return after((at, rows), known=known, desired=2)


def test_a_start_is_absent_after_twice_its_usual_time_and_blocks_its_pool() -> None:
    assert blocked_pools(stuck(40.0), NOW + 40) == {}
    (block,) = blocked_pools(stuck(40.5), NOW + 40.5).values()
    assert (block.pool, block.until, block.tries) == ("main", NOW + 100.5, 1)
    assert block.why == "replica b is not ready after 40s"


@pytest.mark.parametrize(
    ("stages", "why"),
    [
        ([StartStage.SCHEDULE], "replica s0 has no node after 40s"),
        ([StartStage.PULL], "replica s0 has no running container after 40s"),
        ([StartStage.LOAD, StartStage.LOAD], "replicas s0, s1 run but are not ready after 40s"),
        ([StartStage.SCHEDULE, StartStage.LOAD], "replicas s0, s1 are not ready after 40s"),
        ([None], "replica s0 is not ready after 40s"),
    ],
)
def test_a_block_says_where_the_starts_hang(stages: list[StartStage | None], why: str) -> None:
    rows = tuple(Replica(f"s{n}", STARTING, 50.0, stage=stage) for n, stage in enumerate(stages))
    seen = observation(pools=(PoolStatus("main", len(rows), rows),))
    (block,) = learn(seen, State()).learned.blocked
    assert block.why == why


def test_tries_of_a_blocked_pool_are_twice_as_far_apart_each_time_up_to_ten_minutes() -> None:
    state, untils = LearnedState(), []
    for at in range(41, 4000, 5):
        state = stuck(float(at), state)
        untils.append(state.blocked[0].until)
    gaps = [later - sooner for sooner, later in zip(sorted(set(untils)), sorted(set(untils))[1:], strict=False)]
    assert [round(gap / 10) * 10 for gap in gaps[:5]] == [120, 240, 480, 600, 600]


def test_a_replica_that_becomes_ready_ends_the_block() -> None:
    ready = (("a", READY, 950.0, "n1"), ("b", READY, 50.0, "n1"))
    assert after((50, ready), known=stuck(45.0), desired=2).blocked == ()


def test_failed_tries_are_forgotten_after_an_hour() -> None:
    withdrawn = after((200, (("a", READY, 1100.0, "n1"),)), known=stuck(45.0))
    assert [block.tries for block in withdrawn.blocked] == [1]
    assert after((4000, (("a", READY, 4900.0, "n1"),)), known=withdrawn).blocked == ()


def test_an_order_without_a_replica_is_overdue_in_the_same_way() -> None:
    rows = (("a", READY, 900.0, "n1"),)
    state = after((0, rows), (30, rows), (41, rows), desired=2)
    assert state.blocked[0].why == "1 ordered replica not created within 40s"
    status = PoolStatus("main", 2, tuple(Replica(*row) for row in rows))
    (start,) = pending_starts(goal(), state, status, NOW + 41)
    assert (start.name, start.age_s, start.absent) == ("", 41.0, True)


def test_a_replica_that_appears_is_that_of_the_oldest_order() -> None:
    rows = (("a", READY, 900.0, "n1"),)
    state = after((0, rows), desired=2)
    state = after((10, rows), known=state, desired=3)
    assert [since - NOW for _, since in state.awaited] == [0.0, 10.0]
    state = after((11, (*rows, ("b", STARTING, 0.5, ""))), known=state, desired=3)
    assert [since - NOW for _, since in state.awaited] == [10.0]


def test_what_was_learned_of_one_pool_is_kept_while_another_starts() -> None:
    samples = tuple(StartSample("main", COLD, 30.0) for _ in range(8))
    state = LearnedState(starts=samples)
    for number in range(20):
        rows = (Replica(f"s{number}", STARTING, 0.0, "n1"),)
        seen = observation(
            now=NOW + 50 * number, goal=TWO_POOLS, pools=(PoolStatus("main", 0), PoolStatus("spot", 1, rows))
        )
        state = learn(seen, State(learned=state)).learned
        ready = replace(
            seen, now=seen.now + 9, pools=(seen.pools[0], PoolStatus("spot", 1, (replace(rows[0], state=READY),)))
        )
        state = learn(ready, State(learned=state)).learned
    assert start_s(TWO_POOLS, state, "main") == 30.0
    assert start_s(TWO_POOLS, state, "spot") == 9.0
    assert len(state.starts) == 8 + 1 + 8

from hypothesis import given
from hypothesis import strategies as st

from paceline_core.kube import ObjectKey, ScaleTarget
from paceline_core.objects.workload_status import PoolCounts
from paceline_core.replicas import DrainReplica, PoolReplica, StartReplica, count_replicas, plan_replicas

MAIN = ScaleTarget(ObjectKey("default", "chat"), "main")
SPARE = ScaleTarget(ObjectKey("default", "chat"), "spare")


def replica(ordinal: int, *, ready: bool = True, draining: bool = False, target: ScaleTarget = MAIN) -> PoolReplica:
    return PoolReplica(target, ordinal, ready, draining)


def retired(ordinal: int) -> PoolReplica:
    return PoolReplica(MAIN, ordinal, ready=False, draining=False, unready=True)


def test_missing_replicas_are_started() -> None:
    assert plan_replicas({MAIN: 3}, [replica(1)]) == (StartReplica(MAIN), StartReplica(MAIN))


def test_the_newest_replica_leaves_first() -> None:
    assert plan_replicas({MAIN: 1}, [replica(1), replica(2), replica(3)]) == (
        DrainReplica(MAIN, 3),
        DrainReplica(MAIN, 2),
    )


def test_a_replica_that_is_not_ready_leaves_before_a_ready_one() -> None:
    assert plan_replicas({MAIN: 1}, [replica(1, ready=False), replica(2)]) == (DrainReplica(MAIN, 1),)


def test_a_retired_replica_leaves_first_then_one_that_starts_then_the_newest() -> None:
    replicas = [retired(1), replica(2), replica(3), replica(4, ready=False)]
    order = [step.ordinal for step in plan_replicas({MAIN: 0}, replicas) if isinstance(step, DrainReplica)]
    assert order == [1, 4, 3, 2]


def test_a_retired_replica_is_still_one() -> None:
    assert plan_replicas({MAIN: 2}, [retired(1), replica(2)]) == ()


def test_a_draining_replica_counts_for_nothing() -> None:
    assert plan_replicas({MAIN: 1}, [replica(1), replica(2, draining=True)]) == ()
    assert plan_replicas({MAIN: 1}, [replica(1, draining=True)]) == (StartReplica(MAIN),)


def test_a_crashed_replica_is_not_replaced_since_it_comes_back() -> None:
    assert plan_replicas({MAIN: 1}, [replica(1, ready=False)]) == ()


def test_zero_drains_every_replica() -> None:
    assert plan_replicas({MAIN: 0}, [replica(1), replica(2)]) == (DrainReplica(MAIN, 2), DrainReplica(MAIN, 1))


def test_pools_do_not_mix() -> None:
    replicas = [replica(1), replica(2), replica(1, target=SPARE)]
    assert plan_replicas({MAIN: 1, SPARE: 2}, replicas) == (StartReplica(SPARE), DrainReplica(MAIN, 2))


def test_a_draining_replica_is_counted_as_draining_alone() -> None:
    replicas = [replica(1), replica(2, ready=False), replica(3, draining=True), replica(1, target=SPARE)]
    assert count_replicas(MAIN, replicas) == PoolCounts("main", ready=1, starting=1, draining=1)


@st.composite
def pools(draw: st.DrawFn) -> list[PoolReplica]:
    flags = draw(st.lists(st.tuples(st.sampled_from([MAIN, SPARE]), st.booleans(), st.booleans()), max_size=20))
    return [PoolReplica(target, ordinal, ready, draining) for ordinal, (target, ready, draining) in enumerate(flags)]


@given(pools(), st.integers(0, 12), st.integers(0, 12))
def test_executing_the_plan_reaches_the_desired_numbers(replicas: list[PoolReplica], main: int, spare: int) -> None:
    desired = {MAIN: main, SPARE: spare}
    actions = plan_replicas(desired, replicas)
    drained = {(a.target, a.ordinal) for a in actions if isinstance(a, DrainReplica)}
    after = [
        PoolReplica(r.target, r.ordinal, r.ready, r.draining or (r.target, r.ordinal) in drained) for r in replicas
    ] + [PoolReplica(a.target, 100 + i, False, False) for i, a in enumerate(actions) if isinstance(a, StartReplica)]
    for target, wanted in desired.items():
        assert sum(r.target == target and not r.draining for r in after) == wanted
    assert plan_replicas(desired, after) == ()

"""What holds of the policy `slo` whatever is observed: several pools and classes, any history, any state."""

from dataclasses import dataclass, replace
from random import Random
from typing import TypeVar

from hypothesis import given
from hypothesis import strategies as st
from tests.autoscaler.factories import (
    NOW,
    PROMPT,
    STEADY,
    STEP,
    attainment,
    decide,
    flows,
    goal,
    load,
    observation,
    pool,
    seasoned,
)
from tests.autoscaler.test_constraints import missing

from paceline_autoscaler.model.work_history import WorkHistory, code_of
from paceline_autoscaler.policies.constraints import cost_per_hour
from paceline_autoscaler.state import Knowledge, State
from paceline_autoscaler.types import (
    ClassSignals,
    Decision,
    Demand,
    MissingSignal,
    Observation,
    PoolSpec,
    PoolStatus,
    Replica,
    SloTarget,
)
from paceline_core.registry.enums import ReplicaState, RequestClass

T = TypeVar("T")
READY, STARTING, DRAINING = ReplicaState.READY, ReplicaState.STARTING, ReplicaState.DRAINING
WAVES = Knowledge(
    (("both", WorkHistory(codes=bytes(map(code_of, [0.5, 0.5, 1.0, 4.0, 3.0, 1.0])) * 50, variance=0.5, mean=1.7)),)
)
BEGUN = Knowledge((("both", WorkHistory(codes=bytes([code_of(2.0)]) * 10, mean=2.0)),))


@dataclass(frozen=True)
class Case:
    """What two passes see after a minute of `before`, in which nothing started or drained yet."""

    before: Observation
    seen: Observation
    knowledge: Knowledge

    def decided(self, seen: Observation) -> tuple[Decision, State]:
        """The second pass."""
        state = seasoned(replace(self.before, now=NOW - 5), 60, knowledge=self.knowledge)
        return decide(seen, seasoned(seen, 5, state, self.knowledge), self.knowledge)

    def orders(self, seen: Observation | None = None) -> dict[str, int]:
        return orders_of(self.decided(seen or self.seen)[0])

    @property
    def ordered(self) -> dict[str, int]:
        return {status.name: status.desired for status in self.seen.pools}

    @property
    def spec(self) -> tuple[PoolSpec, ...]:
        return self.seen.goal.pools


def orders_of(decision: Decision) -> dict[str, int]:
    """Replicas by pool."""
    return {row.name: row.replicas for row in decision.pools}


@st.composite
def statuses(draw: st.DrawFn, name: str, ages: tuple[float, ...]) -> PoolStatus:
    """A pool of up to ten replicas; those that start have one of these ages."""
    counts = {
        READY: draw(st.sampled_from([0, 1, 2, 4, 6])),
        STARTING: draw(st.sampled_from([0, 0, 1, 3])),
        DRAINING: draw(st.sampled_from([0, 0, 0, 2])),
    }
    replicas = tuple(
        Replica(f"{name}-{state.value}-{n}", state, draw(st.sampled_from(ages)) if state is STARTING else 900.0)
        for state, count in counts.items()
        for n in range(count)
    )
    step = STEP.model_copy(update={"prefill": draw(st.sampled_from([25e-6, 40e-6]))})
    loads = tuple(
        load(replica.name, waiting=waiting, queued_tokens=waiting * PROMPT, step_time=step)
        for replica in replicas
        if replica.state is READY
        for waiting in [draw(st.sampled_from([0, 0, 3, 40]))]
    )
    return PoolStatus(name, counts[READY] + counts[STARTING], replicas, loads)


def at_rest(status: PoolStatus) -> PoolStatus:
    """Without replicas that start or drain."""
    ready = tuple(replica for replica in status.replicas if replica.state is READY)
    return replace(status, desired=len(ready), replicas=ready)


@st.composite
def classes(draw: st.DrawFn) -> tuple[ClassSignals, ...]:
    names = draw(st.lists(st.sampled_from(list(RequestClass)), min_size=1, max_size=3, unique=True))
    return tuple(
        ClassSignals(
            name,
            flows(draw(st.sampled_from([0.0, 0.3, 0.9, 2.1, 3.4]))),
            output_tokens=100.0,
            queued=queued,
            queued_tokens=queued * PROMPT,
            in_flight=1,
            oldest_s=draw(st.floats(0, 100)),
            deadline_s=draw(st.none() | st.floats(1, 3600)),
        )
        for name in names
        for queued in [draw(st.sampled_from([0, 0, 5, 300]))]
    )


@st.composite
def services(draw: st.DrawFn, ages: tuple[float, ...] = (1.0, 8.0, 30.0, 500.0), bounded: bool = False) -> Case:
    """Up to three pools; `bounded`: any bounds and budget, else such as hold what is ordered."""
    names = ["a", "b", "c"][: draw(st.integers(1, 3))]
    views = tuple(draw(statuses(name, ages)) for name in names)
    pools = tuple(
        pool(
            name=status.name,
            min=(least := draw(st.integers(0, 3 if bounded else min(status.desired, 2)))),
            max=draw(st.sampled_from([max(least, 1), 4, 9])) if bounded else status.desired + draw(st.integers(1, 8)),
            gpus=draw(st.integers(1, 2)),
            dollars_per_hour=draw(st.sampled_from([1.0, 2.5, 4.0])),
        )
        for status in views
    )
    gpus, dollars = st.sampled_from([None, None, 3, 9, 20]), st.sampled_from([None, None, 4.0, 17.5, 60.0])
    budget = {"budget_gpus": draw(gpus), "budget_dollars_per_hour": draw(dollars)} if bounded else {}
    judged = draw(st.sampled_from([attainment(), attainment(80, 20), attainment(3, 4)]))
    targets = tuple(SloTarget(cls, "ttft", 0.95, 0.5) for cls in (RequestClass.INTERACTIVE, RequestClass.BATCH))
    wish = goal(pools=pools, targets=targets, **budget)
    before, seen = (
        observation(goal=wish, demand=Demand(1, 1, draw(classes())), pools=pools, attainment=judged)
        for pools in (tuple(map(at_rest, views)), views)
    )
    return Case(before, seen, draw(st.sampled_from([STEADY, WAVES, BEGUN, Knowledge()])))


@given(services(), st.randoms(use_true_random=False))
def test_the_order_in_which_things_are_listed_changes_no_number(case: Case, chance: Random) -> None:
    def shuffled(items: tuple[T, ...]) -> tuple[T, ...]:
        return tuple(chance.sample(items, len(items)))

    seen = case.seen
    pools = tuple(replace(one, replicas=shuffled(one.replicas), loads=shuffled(one.loads)) for one in seen.pools)
    other = replace(seen, pools=shuffled(pools), demand=replace(seen.demand, classes=shuffled(seen.demand.classes)))
    listed, relisted = (case.decided(one)[0] for one in (seen, other))
    assert (relisted.pools, relisted.reading) == (listed.pools, listed.reading)


@given(services(bounded=True))
def test_no_order_leaves_its_bounds(case: Case) -> None:
    """A minimum that the budget cannot pay may wait; what is already ordered of it stays."""
    orders, ordered = case.orders(), case.ordered
    for one in case.spec:
        assert min(one.min, ordered[one.name]) <= orders[one.name] <= one.max
    if case.seen.goal.budget_gpus is None and case.seen.goal.budget_dollars_per_hour is None:
        assert all(orders[one.name] >= one.min for one in case.spec)


@given(services(bounded=True))
def test_beyond_the_minima_no_order_exceeds_the_budget(case: Case) -> None:
    orders, wish = case.orders(), case.seen.goal
    minima = {one.name: one.min for one in case.spec}
    gpus, least_gpus = (sum(counts[one.name] * one.gpus for one in case.spec) for counts in (orders, minima))
    assert wish.budget_gpus is None or gpus <= max(wish.budget_gpus, least_gpus)
    dollars, least_dollars = cost_per_hour(wish, orders), cost_per_hour(wish, minima)
    budget = wish.budget_dollars_per_hour
    assert budget is None or dollars <= max(budget, least_dollars) + 1e-6


@given(services(ages=(1.0, 8.0)), st.sampled_from([gap for gap in MissingSignal if gap is not MissingSignal.LOAD]))
def test_no_pool_shrinks_while_a_signal_is_missing(case: Case, gap: MissingSignal) -> None:
    orders = case.orders(missing(case.seen, gap))
    assert all(orders[name] >= count for name, count in case.ordered.items())


@given(services(ages=(1.0, 8.0)), st.sampled_from(["held", "queued"]))
def test_no_pool_shrinks_while_requests_wait_for_longer_than_the_slo_allows(case: Case, where: str) -> None:
    """A thousand requests are a hundred replica-seconds."""
    waiting = ClassSignals(RequestClass.INTERACTIVE, flows(0.5), 100.0, queued=1000, queued_tokens=1000 * PROMPT)
    if where == "held":
        waiting = ClassSignals(RequestClass.INTERACTIVE, flows(0.0), 100.0, held=1)
    others = [cls for cls in case.seen.demand.classes if cls.name is not waiting.name]
    orders = case.orders(replace(case.seen, demand=Demand(1, 1, (waiting, *others))))
    assert all(orders[name] >= count for name, count in case.ordered.items())


def idle(seen: Observation) -> Observation:
    """The same where nothing waits."""
    pools = tuple(
        replace(pool, loads=tuple(replace(load, waiting=0, queued_tokens=0) for load in pool.loads))
        for pool in seen.pools
    )
    rows = [replace(cls, queued=0, queued_tokens=0, overdue_tokens=0, held=0) for cls in seen.demand.classes]
    return replace(seen, pools=pools, demand=replace(seen.demand, classes=tuple(rows)))


@given(services(ages=(1.0, 8.0)), st.sampled_from([STEADY, Knowledge()]), st.floats(1, 4))
def test_more_arrivals_never_mean_fewer_replicas(case: Case, knowledge: Knowledge, factor: float) -> None:
    """Where what is needed grows with the level, of the classes that have a target. While work waits, more arrivals
    with the same backlog mean that replicas do more.
    """
    case = replace(case, before=idle(case.before), seen=idle(case.seen))
    known = replace(case, knowledge=knowledge)
    promised = [cls for cls in case.seen.demand.classes if cls.name is not RequestClass.OFFLINE]
    more = tuple(
        replace(
            cls,
            flows=tuple(
                replace(flow, arrivals=flow.arrivals * factor, prompt_tokens=flow.prompt_tokens * factor)
                for flow in cls.flows
            ),
        )
        for cls in promised
    )
    fewer, greater = (replace(case.seen, demand=Demand(1, 1, rows)) for rows in (tuple(promised), more))
    orders = known.orders(fewer)
    assert all(count >= orders[name] for name, count in known.orders(greater).items())


@given(services(ages=(1.0, 8.0)))
def test_an_order_is_not_repeated_by_the_next_pass(case: Case) -> None:
    """The same is seen again, but for what was ordered meanwhile. At the same moment: as time passes, the mean of some
    minutes may go beyond all that is known, and then more is ordered.
    """
    decision, state = case.decided(case.seen)
    orders = orders_of(decision)
    carried_out = tuple(replace(one, desired=orders[one.name]) for one in case.seen.pools)
    again, _ = decide(replace(case.seen, pools=carried_out), state, case.knowledge)
    assert all(count <= orders[name] for name, count in orders_of(again).items())

"""Observations to start from: one service, one pool, everything heard, nothing wrong."""

from dataclasses import replace
from typing import Any, get_args

from paceline_autoscaler import policies
from paceline_autoscaler.model.outlook import service_outlook
from paceline_autoscaler.model.work_history import MAX_BINS, WorkHistory, code_of
from paceline_autoscaler.state import Knowledge, State
from paceline_autoscaler.types import (
    Attainment,
    ClassSignals,
    Decision,
    Demand,
    MeasuredLatency,
    Observation,
    PoolSpec,
    PoolStatus,
    RateWindow,
    Replica,
    Role,
    ScalingSpec,
    SloCounts,
    SloTarget,
    WorkerLoad,
)
from paceline_core.registry.enums import QueryResult, ReplicaState, RequestClass
from paceline_core.wire import StepTime

NOW = 1_800_000_000.0
PROMPT, OUTPUT = 4000, 100
STEP = StepTime(base=0.0, prefill=25e-6, sequence=0.0, kv=0.0, observations=50)
"""One request of 4000 prompt tokens is a tenth of a replica-second; output is free."""
INTERACTIVE = RequestClass.INTERACTIVE
STEADY = Knowledge(
    tuple((role, WorkHistory(codes=bytes([code_of(1.0)]) * MAX_BINS, mean=1.0)) for role in get_args(Role))
)
"""Demand has never moved, so it needs a capacity of its level, less a per cent or two that may wait."""


def goal(**changes: Any) -> ScalingSpec:
    made = ScalingSpec(
        service="default/chat",
        policy="slo",
        targets=(SloTarget(INTERACTIVE, "ttft", 0.95, 0.5),),
        pools=(PoolSpec("main", "both", 1, 10, 1, 4.0),),
        step_tokens=2048,
        start_prior_s=20.0,
        drain_limit_s=30.0,
    )
    return replace(made, **changes)


def pool(**changes: Any) -> PoolSpec:
    return replace(PoolSpec("main", "both", 1, 10, 1, 4.0), **changes)


def flows(rate: float, seconds: tuple[float, ...] = (5.0, 15.0, 60.0)) -> tuple[RateWindow, ...]:
    """Windows in which requests worth `rate` replica-seconds per second arrived evenly."""
    return tuple(RateWindow(window, rate * 10 * window, rate * 10 * window * PROMPT) for window in seconds)


def demand(rate: float, **changes: Any) -> Demand:
    fields = {"output_tokens": float(OUTPUT), "in_flight": 1 if rate else 0, **changes}
    return Demand(1, 1, (ClassSignals(INTERACTIVE, flows(rate), **fields),))


def needed(rate: float, mean: float | None = None) -> float:
    """The capacity that demand of this level needs; it has been so for minutes, unless another mean is given."""
    target, history = goal().targets[0], STEADY.history("both")
    outlook = service_outlook(history, goal().start_prior_s, rate, target.seconds, 1 - target.quantile)
    return outlook.needed_after(rate, rate if mean is None else mean)


def load(worker: str, **changes: Any) -> WorkerLoad:
    return replace(WorkerLoad(worker, 64, 1, 0, 0, 1_000_000, 0.1, STEP), **changes)


def view(ready: int = 1, starting: int = 0, draining: int = 0, **changes: Any) -> PoolStatus:
    """A pool whose replicas are all known; starting ones are five seconds old."""
    counts = (
        (ReplicaState.READY, ready, 900.0),
        (ReplicaState.STARTING, starting, 5.0),
        (ReplicaState.DRAINING, draining, 900.0),
    )
    replicas = tuple(Replica(f"{state.value}-{n}", state, age) for state, count, age in counts for n in range(count))
    loads = tuple(load(replica.name) for replica in replicas if replica.state is ReplicaState.READY)
    return replace(PoolStatus("main", ready + starting, replicas, loads), **changes)


def attainment(good: float = 100, bad: float = 0) -> Attainment:
    return Attainment(QueryResult.VALUE, 60.0, (SloCounts(INTERACTIVE, "ttft_p95", good, bad),))


def measured(seconds: float) -> tuple[MeasuredLatency, ...]:
    """The interactive TTFT's p95."""
    return (MeasuredLatency(INTERACTIVE, "ttft", 0.95, seconds),)


def answered(result: QueryResult) -> Attainment:
    return Attainment(result, 60.0)


def observation(**changes: Any) -> Observation:
    made = Observation(NOW, goal(), demand(0.5), (view(),), attainment(), measured(0.4219))
    return replace(made, **changes)


def decide(seen: Observation, state: State, knowledge: Knowledge = STEADY) -> tuple[Decision, State]:
    """A decision, of a service whose demand has never moved unless other knowledge is given."""
    return policies.decide(seen, state, knowledge)


def seasoned(
    seen: Observation, seconds: float = 600.0, state: State | None = None, knowledge: Knowledge = STEADY
) -> State:
    """The state after the same has been seen for so long, once every five seconds, up to just before `seen.now`."""
    known = state or State()
    for ago in range(round(seconds), 0, -5):
        _, known = decide(replace(seen, now=seen.now - ago), known, knowledge)
    return known

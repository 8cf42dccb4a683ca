"""Policies with a period and a memory of their own, as simulations call them: ours, and others under bounds alone.

Ours is `decide`, with its learning and constraints. A baseline decides as its source does: the guards of our policy
would falsify it, so only the pools' bounds and the budget apply.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeVar

from paceline_autoscaler.model.history_recorder import HistoryRecorder
from paceline_autoscaler.policies.constraints import deal_replicas
from paceline_autoscaler.policies.decision import decide
from paceline_autoscaler.state import Knowledge, LearnedState, StartSample, State
from paceline_autoscaler.types import (
    Attainment,
    Decision,
    Demand,
    MeasuredLatency,
    Observation,
    StartKind,
    WorkerLoad,
)

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class PastSignals:
    """Signals of one moment, for a policy to see `lag_s` later. `attainment_age_s` counts until that moment."""

    demand: Demand
    loads: Mapping[str, WorkerLoad]
    attainment: Attainment | None
    latencies: tuple[MeasuredLatency, ...]
    attainment_age_s: float | None

    def attainment_age_later_s(self, lag_s: float) -> float | None:
        """The age `lag_s` later."""
        return None if self.attainment_age_s is None else self.attainment_age_s + lag_s


class ReplicaPolicy(Protocol):
    """Decides one service's replicas by pool, every `period_s`, from signals that are `lag_s` old.

    `retires`: whether its autoscaler retires the workers that a scale-down removes; else the cluster chooses them.
    """

    @property
    def period_s(self) -> float: ...

    @property
    def lag_s(self) -> float: ...

    @property
    def retires(self) -> bool: ...

    def replicas(self, observation: Observation) -> Mapping[str, int]: ...


class Baseline(Protocol[S]):
    """Another autoscaler's rule, pure: `period_s` is its own sync period, `lag_s` the age of the metrics it reads.

    It knows nothing but the observation and the state that it returned last: no clock, no random numbers.
    """

    @property
    def period_s(self) -> float: ...

    @property
    def lag_s(self) -> float: ...

    def initial_state(self) -> S:
        """The state of an autoscaler that has just started."""
        ...

    def decide(self, observation: Observation, own: S) -> tuple[dict[str, int], S]:
        """Replicas wanted by pool, never negative, before bounds and budget; and the state to pass next time."""
        ...


def having_started(starts_s: Mapping[str, float]) -> State:
    """The state of an autoscaler that has seen a replica of each of these pools start, in so many seconds."""
    starts = tuple(StartSample(pool, StartKind.COLD, seconds) for pool, seconds in starts_s.items())
    return State(learned=LearnedState(starts=starts))


@dataclass(slots=True)
class ProductionPolicy:
    """The policy of the service's spec. `decisions` keeps those that changed replicas, with their time."""

    period_s: float = 5.0
    lag_s: float = 1.0
    state: State = field(default_factory=State)
    knowledge: Knowledge = field(default_factory=Knowledge)
    decisions: list[tuple[float, Decision]] = field(default_factory=list)
    recorder: HistoryRecorder = field(default_factory=HistoryRecorder)
    retires: ClassVar = True

    def replicas(self, observation: Observation) -> Mapping[str, int]:
        decision, self.state = decide(observation, self.state, self.knowledge)
        self.knowledge = self.recorder.knowledge(observation, self.state.learned, self.knowledge)
        if decision.changes:
            self.decisions.append((observation.now, decision))
        return {pool.name: pool.replicas for pool in decision.pools}


class BaselinePolicy:
    """A baseline within the pools' bounds and the budget."""

    retires = False

    def __init__(self, baseline: Baseline[Any]) -> None:
        self.baseline = baseline
        self.period_s = baseline.period_s
        self.lag_s = baseline.lag_s
        self._state = baseline.initial_state()

    def replicas(self, observation: Observation) -> Mapping[str, int]:
        wanted, self._state = self.baseline.decide(observation, self._state)
        spec = observation.goal
        return deal_replicas(spec, {pool.name: min(max(wanted[pool.name], pool.min), pool.max) for pool in spec.pools})

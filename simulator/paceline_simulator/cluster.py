"""The cluster on the virtual clock: replicas that start by stage, run, drain and are lost, in pools with limited nodes.

The plan of starts and drains is the one that local mode executes (`core.replicas`); where the autoscaler retires
workers first, they drain as soon as they are chosen. A start passes its stages one after another; a share of the starts
hangs in the last one. A replica that finds no room on the nodes stays pending and takes the next place that becomes
free. A draining replica ends when its requests have ended or moved, at the latest after its drain limit; then what it
still computes is lost, as with a spot node after its notice.

GPU time is paid from order to release, pending replicas excepted, because they occupy no GPU.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from math import inf
from random import Random

from paceline_autoscaler.policies.fluid_pool import FIRST_AGE_S
from paceline_core.clock import rfc3339
from paceline_core.errors import InvalidInput
from paceline_core.kube import Endpoint, StartStage
from paceline_core.kube.cluster import ScaleTarget
from paceline_core.objects.naming import STABLE
from paceline_core.registry.enums import ReplicaState
from paceline_core.replicas import DrainReplica, PoolReplica, plan_replicas
from paceline_core.wire import KVLoad, LoadReport, WorkerState
from paceline_simulator.engine import EngineSpec, SimulatedEngine
from paceline_simulator.events import EventQueue

EPOCH = datetime(2027, 1, 1, tzinfo=UTC)
"""The wall clock at the simulation's start."""
_SHORTEST = 0.3
"""A start takes at least this share of its mean time."""
REVISION = "r1"
_POD_STAGES = {"pending": StartStage.SCHEDULE, "schedule": StartStage.SCHEDULE, "pull": StartStage.PULL}
"""What a pod shows of a start's stages; of the others it shows that its containers run."""


@dataclass(frozen=True, slots=True)
class StartTimes:
    """Seconds of a start by stage, in order. A start's stages are all longer or shorter by one factor, normal around 1
    with deviation `spread`; a `stuck_share` of the starts takes `stuck_s` more in its last stage.
    """

    stages: tuple[tuple[str, float], ...]
    spread: float = 0.15
    stuck_share: float = 0.0
    stuck_s: float = 3600.0

    @classmethod
    def of(cls, lead_s: float, spread: float = 0.15) -> "StartTimes":
        """A start of `lead_s` in all, split as a large model's start usually is."""
        shares = {"schedule": 0.05, "pull": 0.25, "load": 0.55, "warm": 0.15}
        return cls(tuple((name, lead_s * share) for name, share in shares.items()), spread)

    @property
    def mean_s(self) -> float:
        return sum(seconds for _, seconds in self.stages)

    def draw(self, random: Random) -> tuple[tuple[str, float], ...]:
        """One start."""
        factor = max(random.gauss(1.0, self.spread), _SHORTEST)
        *first, (name, last) = [(name, seconds * factor) for name, seconds in self.stages]
        return (*first, (name, last + (self.stuck_s if random.random() < self.stuck_share else 0.0)))


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """One pool of a service: its engine, starts and nodes.

    `capacity`: replicas that its nodes have room for, None without a limit. `lost_per_hour`: the rate at which each
    ready replica's spot node is taken away, `notice_s` after a notice. `outages`: times at which a share of all ready
    replicas (0 to 1) loses its nodes so, at once.
    """

    target: ScaleTarget
    engine: EngineSpec
    start: StartTimes
    gpus: int = 1
    drain_limit_s: float = 600.0
    capacity: int | None = None
    lost_per_hour: float = 0.0
    notice_s: float = 30.0
    outages: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        if not self.start.stages:
            raise InvalidInput(f"pools.{self.target.pool}.start", "has no stage; pass at least one")


@dataclass(slots=True, eq=False)
class SimulatedReplica:
    """`stage` is the stage of its start, "pending", or "ready"; `ordered` when it was ordered, `paid` since when."""

    plan: PoolPlan
    ordinal: int
    name: str
    ordered: float
    stage: str = "pending"
    paid: float | None = None
    engine: SimulatedEngine | None = None
    draining: bool = False
    gone: bool = False

    @property
    def state(self) -> ReplicaState:
        if self.draining:
            return ReplicaState.DRAINING
        return ReplicaState.STARTING if self.engine is None else ReplicaState.READY

    @property
    def endpoint(self) -> Endpoint:
        ready, created = self.engine is not None, EPOCH + timedelta(seconds=self.ordered)
        starting = self.state is ReplicaState.STARTING
        return Endpoint(
            self.name,
            self.plan.target.pool,
            STABLE,
            REVISION,
            "10.0.0.1",
            1000 + self.ordinal,
            ready=ready and not self.draining,
            terminating=self.draining,
            created=rfc3339(created),
            stage=_POD_STAGES.get(self.stage, StartStage.LOAD) if starting else None,
        )


class SimulatedCluster:
    """`changed` is called with a service when its endpoints have changed, `killed` with a replica whose work is lost.

    `engines`: those of ready and draining replicas, by name. `ordered`: the orders of later replicas.
    """

    def __init__(
        self,
        plans: Iterable[PoolPlan],
        events: EventQueue,
        random: Random,
        changed: Callable[[str], None],
        killed: Callable[[SimulatedReplica], None],
    ) -> None:
        self._plans = {plan.target: plan for plan in plans}
        self._events = events
        self._random = random
        self._changed = changed
        self._killed = killed
        self._ordinals = count()
        self.desired: dict[ScaleTarget, int] = dict.fromkeys(self._plans, 0)
        self.replicas: list[SimulatedReplica] = []
        self.engines: dict[str, SimulatedEngine] = {}
        self.ordered: list[tuple[float, ScaleTarget]] = []
        self._released: dict[ScaleTarget, float] = dict.fromkeys(self._plans, 0.0)

    def begin(self, counts: Mapping[ScaleTarget, int]) -> None:
        """Start with so many ready replicas, as old as FIRST_AGE_S."""
        for target, number in counts.items():
            self.desired[target] = number
            for _ in range(number):
                replica = self._order(self._plans[target])
                replica.ordered, replica.paid = self._events.now - FIRST_AGE_S, self._events.now
                self._ready(replica)
        for plan in self._plans.values():
            for at, share in plan.outages:
                self._events.at(at, self._lose, plan, share)

    def scale(self, counts: Mapping[ScaleTarget, int], retired: Collection[str] = ()) -> None:
        """Set the desired replicas of pools, and start or drain replicas accordingly, the `retired` ones first."""
        self.desired |= counts
        active = {(replica.plan.target, replica.ordinal): replica for replica in self.replicas}
        known = [
            PoolReplica(r.plan.target, r.ordinal, r.engine is not None, r.draining, unready=r.name in retired)
            for r in self.replicas
        ]
        for step in plan_replicas(self.desired, known):
            if isinstance(step, DrainReplica):
                self._drain(active[step.target, step.ordinal])
            else:
                self.ordered.append((self._events.now, step.target))
                self._order(self._plans[step.target])
        self._place()

    def of(self, service: str) -> list[SimulatedReplica]:
        return [replica for replica in self.replicas if str(replica.plan.target.service) == service]

    def endpoints(self, service: str) -> tuple[Endpoint, ...]:
        return tuple(replica.endpoint for replica in self.of(service))

    def gpu_seconds(self, target: ScaleTarget) -> float:
        """GPU time of a pool so far."""
        running = (r for r in self.replicas if r.plan.target == target and r.paid is not None)
        open_s = sum(self._events.now - (replica.paid or 0.0) for replica in running)
        return (self._released[target] + open_s) * self._plans[target].gpus

    def sweep(self) -> None:
        """End draining replicas whose last request has ended or moved."""
        for replica in [r for r in self.replicas if r.draining and (r.engine is None or not r.engine.open)]:
            self._end(replica)

    # --- a replica's life

    def _order(self, plan: PoolPlan) -> SimulatedReplica:
        ordinal = next(self._ordinals)
        name = f"{plan.target.service.name}-{plan.target.pool}-{ordinal}"
        replica = SimulatedReplica(plan, ordinal, name, self._events.now)
        self.replicas.append(replica)
        self._changed(str(plan.target.service))
        return replica

    def _place(self) -> None:
        """Begin the start of pending replicas for which the nodes have room."""
        for replica in [replica for replica in self.replicas if replica.paid is None]:
            plan = replica.plan
            placed = sum(r.paid is not None for r in self.replicas if r.plan is plan)
            if plan.capacity is None or placed < plan.capacity:
                replica.paid = self._events.now
                self._start(replica, plan.start.draw(self._random))

    def _start(self, replica: SimulatedReplica, stages: tuple[tuple[str, float], ...]) -> None:
        if replica.gone:
            return
        if not stages:
            self._ready(replica)
            return
        (replica.stage, seconds), *rest = stages
        self._events.at(self._events.now + seconds, self._start, replica, tuple(rest))

    def _ready(self, replica: SimulatedReplica) -> None:
        plan, now = replica.plan, self._events.now
        kv = KVLoad(page_tokens=1, total=1, free=1)
        report = LoadReport(
            worker=replica.name,
            service=str(plan.target.service),
            revision=REVISION,
            pool=plan.target.pool,
            state=WorkerState.STARTING,
            emulated=True,
            slots=1,
            kv=kv,
            step_time=plan.engine.model,
            max_model_len=1,
        )
        replica.stage = "ready"
        replica.engine = self.engines[replica.name] = SimulatedEngine(plan.engine, self._events, report)
        lost_s = self._random.expovariate(plan.lost_per_hour / 3600) if plan.lost_per_hour else inf
        if lost_s < inf:
            self._events.at(now + lost_s, self._take_away, replica)
        self._changed(str(plan.target.service))

    def _take_away(self, replica: SimulatedReplica) -> None:
        """Its spot node is taken away after a notice; the replica set starts another one at once."""
        if replica.gone:
            return
        self._drain(replica, replica.plan.notice_s)
        self.scale({})

    def _lose(self, plan: PoolPlan, share: float) -> None:
        ready = [replica for replica in self.replicas if replica.plan is plan and replica.state is ReplicaState.READY]
        for replica in ready[: round(share * len(ready))]:
            self._take_away(replica)

    def _drain(self, replica: SimulatedReplica, limit_s: float | None = None) -> None:
        if replica.draining:
            return
        replica.draining = True
        if replica.engine is None or not replica.engine.open:
            self._end(replica)
            return
        replica.engine.drain()
        limit_s = replica.plan.drain_limit_s if limit_s is None else limit_s
        self._events.at(self._events.now + limit_s, self._end, replica)
        self._changed(str(replica.plan.target.service))

    def _end(self, replica: SimulatedReplica) -> None:
        """Release its GPU; requests that it still has are lost."""
        if replica.gone:
            return
        replica.gone = True
        self.replicas.remove(replica)
        if replica.paid is not None:
            self._released[replica.plan.target] += self._events.now - replica.paid
        if replica.engine is not None:
            replica.engine.stop()
            self._killed(replica)
            del self.engines[replica.name]
        self._changed(str(replica.plan.target.service))
        self._place()

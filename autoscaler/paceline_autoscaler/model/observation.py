"""A service's specification in numbers, and its signals combined into one `Observation`. Pure."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from paceline_autoscaler.types import (
    Attainment,
    Demand,
    MeasuredLatency,
    Observation,
    PoolSpec,
    PoolStatus,
    Replica,
    ScalingSpec,
    SloTarget,
    WorkerLoad,
)
from paceline_core.errors import InvalidInput
from paceline_core.kube import Endpoint, Scale
from paceline_core.objects import ResolvedService
from paceline_core.objects.naming import STABLE
from paceline_core.registry.enums import ReplicaState
from paceline_planner.accelerators import accelerator
from paceline_planner.coldstart import PULL, SCHEDULE, WARM
from paceline_planner.hardware import Accelerator
from paceline_planner.service_devices import pool_price, replica_devices

_LOAD_PRIOR_S = 60.0
_CPU_PRIOR_S = 10.0

Find = Callable[[str], Accelerator | None]


def built_in(name: str) -> Accelerator | None:
    """The planner's built-in accelerator of that name, if there is one."""
    try:
        return accelerator(name)
    except InvalidInput:
        return None


def only_pool(observation: Observation) -> PoolStatus:
    """The pool of a service that has one; InvalidInput for several, since each would get the replicas for all."""
    if len(observation.pools) != 1:
        names = ", ".join(pool.name for pool in observation.pools)
        raise InvalidInput("pools", f"a total of the service scales one pool, and there are {names}: keep one")
    return observation.pools[0]


def scaling_spec(service: ResolvedService, find: Find = built_in) -> ScalingSpec:
    """A resolved service in numbers; `find` looks accelerators up by name. An unknown price counts as 0.

    An emulated pool has the GPUs and the price of the accelerator that it emulates, not of the machine it runs on.
    """
    scaling = service.scaling
    dollars = scaling.budget_dollars_per_hour
    return ScalingSpec(
        service=service.key,
        policy=scaling.policy,
        targets=tuple(SloTarget(t.cls, t.metric, t.quantile, t.seconds, t.per_prompt_token) for t in service.targets),
        pools=tuple(
            PoolSpec(
                name=pool.name,
                role=pool.role,
                min=pool.min,
                max=pool.max,
                gpus=replica_devices(service, pool),
                dollars_per_hour=float(pool_price(service, pool, find) or 0),
            )
            for pool in service.pools
        ),
        step_tokens=service.engine.step_tokens,
        start_prior_s=start_prior_s(service),
        drain_limit_s=service.rollout.drain_timeout_s,
        idle_after_s=scaling.scale_to_zero_after_s,
        budget_gpus=scaling.budget_gpus,
        budget_dollars_per_hour=None if dollars is None else float(dollars),
        pause_until=service.pause_until,
        pause_reason=service.pause_reason,
        foreign=service.runtime.workload,
    )


def start_prior_s(service: ResolvedService) -> float:
    """Expected seconds of the first start; on CPUs models are small and nothing is compiled."""
    if service.engine.emulation:
        return service.engine.emulation.cold_start_s
    if all(pool.accelerator == "cpu" for pool in service.pools):
        return _CPU_PRIOR_S
    return SCHEDULE + PULL + WARM + _LOAD_PRIOR_S


@dataclass(frozen=True, slots=True)
class SignalSnapshot:
    """The latest of every signal. `scales` by pool, `loads` by worker."""

    demand: Demand
    scales: Mapping[str, Scale]
    endpoints: Iterable[Endpoint]
    endpoints_lost: bool
    objects_lost: bool
    loads: Mapping[str, WorkerLoad]
    attainment: Attainment | None
    latencies: tuple[MeasuredLatency, ...] = ()
    demand_age_s: float | None = None
    attainment_age_s: float | None = None
    state_unread: bool = False
    recent_edit: str = ""
    other_scaler: str = ""


def observe(now: float, spec: ScalingSpec, signals: SignalSnapshot) -> Observation:
    """Observe one service at `now`; a canary's workers only cost: their number follows from the pool's."""
    endpoints = sorted(signals.endpoints, key=lambda e: e.name)
    stable = [e for e in endpoints if e.track == STABLE]
    pools = []
    for name, scale in signals.scales.items():
        replicas = tuple(_replica(endpoint, now) for endpoint in stable if endpoint.pool == name)
        ready = [replica.name for replica in replicas if replica.state is ReplicaState.READY]
        loads = tuple(signals.loads[worker] for worker in ready if worker in signals.loads)
        canary = sum(endpoint.pool == name and endpoint.track != STABLE for endpoint in endpoints)
        pools.append(PoolStatus(name, scale.replicas, replicas, loads, canary))
    return Observation(
        now=now,
        goal=spec,
        demand=signals.demand,
        pools=tuple(pools),
        attainment=signals.attainment,
        latencies=signals.latencies,
        demand_age_s=signals.demand_age_s,
        attainment_age_s=signals.attainment_age_s,
        endpoints_lost=signals.endpoints_lost,
        objects_lost=signals.objects_lost,
        state_unread=signals.state_unread,
        recent_edit=signals.recent_edit,
        other_scaler=signals.other_scaler,
    )


def _replica(endpoint: Endpoint, now: float) -> Replica:
    state = ReplicaState.READY if endpoint.ready else ReplicaState.STARTING
    if endpoint.terminating:
        state = ReplicaState.DRAINING
    created = now if endpoint.created is None else datetime.fromisoformat(endpoint.created).timestamp()
    return Replica(endpoint.name, state, max(now - created, 0.0), endpoint.node, endpoint.stage)

"""Put together what was heard, listed and measured: one Observation. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from paceline_autoscaler.nouns import Attainment, Demand, Observation, PoolStatus, Replica, ScalingSpec, WorkerLoad
from paceline_core.kube import Endpoint, Scale
from paceline_core.objects.naming import STABLE
from paceline_core.registry.enums import ReplicaState


@dataclass(frozen=True, slots=True)
class SignalSnapshot:
    """The parts of an observation as they come. `scales` by pool, `loads` by worker."""

    demand: Demand
    scales: Mapping[str, Scale]
    endpoints: Iterable[Endpoint]
    endpoints_lost: bool
    objects_lost: bool
    loads: Mapping[str, WorkerLoad]
    attainment: Attainment | None
    state_unread: bool = False


def observe(now: float, goal: ScalingSpec, seen: SignalSnapshot) -> Observation:
    """One service at `now`. Canary workers are not counted: their number follows from the pool's by its share."""
    stable = [endpoint for endpoint in seen.endpoints if endpoint.track == STABLE]
    pools = tuple(
        _pool_status(name, scale, [endpoint for endpoint in stable if endpoint.pool == name], seen.loads, now)
        for name, scale in seen.scales.items()
    )
    return Observation(
        now, goal, seen.demand, pools, seen.attainment, seen.endpoints_lost, seen.objects_lost, seen.state_unread
    )


def _pool_status(
    name: str, scale: Scale, endpoints: list[Endpoint], loads: Mapping[str, WorkerLoad], now: float
) -> PoolStatus:
    replicas = tuple(Replica(e.name, _state(e), _age(e, now)) for e in sorted(endpoints, key=lambda e: e.name))
    ready = [replica.name for replica in replicas if replica.state is ReplicaState.READY]
    return PoolStatus(name, scale.replicas, replicas, tuple(loads[worker] for worker in ready if worker in loads))


def _state(endpoint: Endpoint) -> ReplicaState:
    if endpoint.terminating:
        return ReplicaState.DRAINING
    return ReplicaState.READY if endpoint.ready else ReplicaState.STARTING


def _age(endpoint: Endpoint, now: float) -> float:
    return 0.0 if endpoint.created is None else max(now - datetime.fromisoformat(endpoint.created).timestamp(), 0.0)

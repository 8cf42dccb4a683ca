"""The metrics that baselines read, from an observation: of each replica, or of the whole service."""

from collections.abc import Callable, Mapping

from paceline_autoscaler.types import Observation, PoolStatus, WorkerLoad

REPLICA_METRICS: Mapping[str, Callable[[WorkerLoad], float]] = {
    "waiting": lambda load: load.waiting,
    "running": lambda load: load.running,
    "open": lambda load: load.running + load.waiting,
    "kv": lambda load: load.kv_used,
}
"""By name, as vLLM exports them: requests, and the used share of the KV cache from 0 to 1."""


def replica_values(pool: PoolStatus, metric: str) -> dict[str, float]:
    """The metric of every replica that reports, by the replica's name."""
    read = REPLICA_METRICS[metric]
    return {load.worker: float(read(load)) for load in pool.loads}


def queued(observation: Observation) -> int:
    """Requests that wait at the gateways, as in the flow-control queue of llm-d's endpoint picker."""
    return sum(cls.queued for cls in observation.demand.classes)


def waiting(observation: Observation) -> int:
    """Requests that wait at the gateways or in a replica's queue."""
    return queued(observation) + sum(load.waiting for pool in observation.pools for load in pool.loads)


def running(observation: Observation) -> int:
    """Requests that the gateways have dispatched and not yet ended."""
    return sum(cls.in_flight for cls in observation.demand.classes)


def open_requests(observation: Observation) -> int:
    """All requests that clients wait for."""
    return queued(observation) + running(observation)


def gateways_silent(observation: Observation) -> bool:
    """Whether no gateway reports, so that a query for their metrics finds no series."""
    return observation.demand.expected > 0 and observation.demand.heard == 0

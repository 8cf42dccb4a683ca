"""What the baselines share: a decision for each pool on its own, and its state by pool.

A baseline (`policies.replica_policy.Baseline`) is a frozen dataclass of its parameters. Demand, loads and latencies are
`lag_s` old when it decides; replicas, existing and ordered, are those of now, as the API server tells every autoscaler.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from paceline_autoscaler.types import Observation, PoolStatus

P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class PerPool(Generic[P]):
    """The state of an autoscaler that scales each pool on its own, by pool."""

    pools: Mapping[str, P] = field(default_factory=dict)


def decide_pools(
    observation: Observation, own: PerPool[P], fresh: P, scale: Callable[[PoolStatus, P], tuple[int, P]]
) -> tuple[dict[str, int], PerPool[P]]:
    """Decide for each pool with its own state; a pool seen for the first time begins with `fresh`."""
    decisions = {pool.name: scale(pool, own.pools.get(pool.name, fresh)) for pool in observation.pools}
    counts = {name: count for name, (count, _) in decisions.items()}
    return counts, PerPool({name: state for name, (_, state) in decisions.items()})

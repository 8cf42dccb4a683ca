"""What the baselines share: the shape of a rival autoscaler, and its state by pool.

A baseline is a frozen dataclass of its parameters. Its `decide` is pure and knows nothing but the observation and the
state that it returned last: no clock, no random numbers. Its caller calls it every `period_s` and applies the pools'
bounds and the budget. Demand, loads and latencies are `lag_s` old; replicas, existing and ordered, are those of now, as
the API server tells every autoscaler. The guards of paceline's own policy do not apply: they would falsify a rival.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from paceline_autoscaler.types import Observation, PoolStatus

S = TypeVar("S")
P = TypeVar("P")


class Baseline(Protocol[S]):
    """A rival autoscaler: `period_s` is its own sync period, `lag_s` the age of the metrics that it reads."""

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

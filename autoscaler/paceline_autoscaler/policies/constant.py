"""A constant number of replicas: what a pool costs and attains that nobody scales. Pure.

A file of its own, since this is a policy like the others.
"""

from dataclasses import dataclass

from paceline_autoscaler.types import Observation


@dataclass(frozen=True, slots=True)
class ConstantState:
    """Nothing to remember."""


@dataclass(frozen=True, slots=True)
class Constant:
    """`replicas` in every pool."""

    replicas: int
    period_s: float = 15.0
    lag_s: float = 0.0

    def initial_state(self) -> ConstantState:
        return ConstantState()

    def decide(self, observation: Observation, own: ConstantState) -> tuple[dict[str, int], ConstantState]:
        return {pool.name: self.replicas for pool in observation.pools}, own

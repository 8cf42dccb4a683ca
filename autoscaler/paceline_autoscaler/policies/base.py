"""The seam between policies and constraints: a recommendation, and what makes one."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from paceline_autoscaler.model.estimate import WorkEstimate
from paceline_autoscaler.types import LearnedState
from paceline_core.registry.enums import ScaleLimit, ScaleReason

_PRECEDENCE = {
    ScaleReason.DEMAND: 3,
    ScaleReason.BACKLOG: 3,
    ScaleReason.ATTAINMENT: 3,
    ScaleReason.CONSOLIDATE: 2,
    ScaleReason.COOLDOWN: 1,
}


@dataclass(frozen=True, slots=True)
class Recommendation:
    """Replicas per pool, and why. `body` is the sentence without the `2→4:` in front; `limit` is what binds so far.

    A policy sets `rejected` and the `capacity` it reckons with; constraints change the rest.
    """

    counts: Mapping[str, int]
    reason: ScaleReason
    body: str
    limit: ScaleLimit = ScaleLimit.NONE
    rejected: tuple[str, ...] = ()
    capacity: float = 0.0

    @property
    def total(self) -> int:
        """Replicas over all pools."""
        return sum(self.counts.values())


class ScalingPolicy(Protocol):
    """A policy's own rule. Learning, scale to zero and constraints are common to all. Pure."""

    def recommend(self, work: WorkEstimate, state: LearnedState) -> tuple[Recommendation, LearnedState]:
        """What this policy would do, and what to remember."""
        ...


def join(parts: list[Recommendation]) -> Recommendation:
    """The counts of all roles; the words of the part that changes most: up before down before cooldown before hold."""
    first = max(parts, key=lambda part: _PRECEDENCE.get(part.reason, 0))
    counts = {name: count for part in parts for name, count in part.counts.items()}
    return replace(first, counts=counts, capacity=min(part.capacity for part in parts))

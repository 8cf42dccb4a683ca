"""An observation made sense of: work instead of tokens, pools of one role together, what is missing named. Pure.

Everything in a Group is in units of its reference pool, the one that does a request at the least cost: a replica of a
pool that needs `ratio` times as long for the same request counts 1/ratio.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain

from paceline_autoscaler.capacity import usable
from paceline_autoscaler.nouns import MissingSignal, Observation, PoolSpec, PoolStatus, Role, ScalingSpec

MIN_CLEAR_S = 10.0


@dataclass(frozen=True, slots=True)
class PoolEstimate:
    """One pool. `ratio` of its replica-seconds do what one of the reference pool does; `etas` (s) of who is pending."""

    goal: PoolSpec
    view: PoolStatus
    ratio: float
    etas: tuple[float, ...]

    @property
    def ready(self) -> int:
        """Replicas that take requests and are still ordered."""
        return min(self.view.ready, self.view.desired)


@dataclass(frozen=True, slots=True)
class RoleEstimate:
    """The pools of one role, cheapest first. `known`: some replica has told how fast it is."""

    role: Role
    columns: tuple[PoolEstimate, ...]
    known: bool
    demand: float
    backlog: float
    burn: float | None

    @property
    def desired(self) -> int:
        """Replicas ordered."""
        return sum(column.view.desired for column in self.columns)

    @property
    def ready(self) -> int:
        """Replicas that take requests and are still ordered."""
        return sum(column.ready for column in self.columns)

    @property
    def pending(self) -> tuple[float, ...]:
        """Seconds until each ordered replica comes, soonest first."""
        return tuple(sorted(chain.from_iterable(column.etas for column in self.columns)))

    def capacity(self, counts: Mapping[str, int], derate: float) -> float:
        """Work rate that these many replicas can take on while keeping the promise."""
        share = usable(sum(counts.values())) * derate
        return share * sum(counts[column.goal.name] / column.ratio for column in self.columns)

    def counts(self) -> dict[str, int]:
        """Replicas ordered, by pool."""
        return {column.goal.name: column.view.desired for column in self.columns}


@dataclass(frozen=True, slots=True)
class WorkEstimate:
    """What policies look at. `backlogged`: more waits than the promise allows; `idle_s`: how long nobody has asked."""

    observation: Observation
    groups: tuple[RoleEstimate, ...]
    gaps: tuple[MissingSignal, ...]
    backlogged: bool
    idle_s: float
    burn: float | None
    start_s: float
    drain_s: float

    @property
    def goal(self) -> ScalingSpec:
        """What the user wishes."""
        return self.observation.goal

    @property
    def ordered(self) -> dict[str, int]:
        """Replicas ordered, by pool."""
        return {view.name: view.desired for view in self.observation.pools}

    @property
    def horizon_s(self) -> float:
        """How far ahead capacity is compared with work: until what is ordered now has arrived and caught up."""
        return self.start_s + self.clear_s

    @property
    def clear_s(self) -> float:
        """How long new replicas may take to catch up."""
        return clear_s(self.start_s)

    @property
    def round_trip_s(self) -> float:
        """What a scale-down commits to: draining, and starting again if it was wrong."""
        return self.start_s + self.drain_s


def clear_s(lead: float) -> float:
    """Catching up faster than in two starts would take replicas that are needless before they have paid for theirs."""
    return max(2 * lead, MIN_CLEAR_S)

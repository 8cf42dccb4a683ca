"""Work as a fluid: does what flows in, and what has gathered, fit through what is there and what is coming? Pure.

Pending replicas count from their learned arrival on, so an order is never repeated because it has not arrived yet; new
ones count from one start on. The least counts that fit are what is wished.
"""

from bisect import bisect_left
from dataclasses import dataclass

from paceline_autoscaler.model.capacity import usable
from paceline_autoscaler.model.estimate import PoolEstimate, RoleEstimate, WorkEstimate

UNBOUNDED = 100_000
TOLERANCE = 0.1


@dataclass(frozen=True, slots=True)
class FluidModel:
    """One role's pools over a horizon (s): work that comes and work that can be done, in the group's units."""

    group: RoleEstimate
    lead_s: float
    clear_s: float
    derate: float

    @property
    def work(self) -> float:
        """Replica-seconds to be done within the horizon."""
        return self.group.backlog + self.group.demand * (self.lead_s + self.clear_s)

    def least(self) -> dict[str, int]:
        """The least counts, none below what is ordered, that do the work; cheap pools are filled first.

        The last pool is unbounded: a wish beyond every maximum is for the guards to cut, and to be told of.
        """
        counts = self.group.counts()
        for index, column in enumerate(self.group.columns):
            last = index == len(self.group.columns) - 1
            top = UNBOUNDED if last else max(column.goal.max, counts[column.goal.name])
            counts[column.goal.name] = self._least(column, counts, top)
        return counts

    def fits(self, counts: dict[str, int]) -> bool:
        """Whether these counts do the work, a tenth of a replica forgiven."""
        return self.supply(counts) + TOLERANCE * self.clear_s * self.derate >= self.work

    def supply(self, counts: dict[str, int]) -> float:
        """Replica-seconds that can be done within the horizon."""
        share = usable(sum(counts.values())) * self.derate
        return share * sum(self._seconds(column, counts[column.goal.name]) / column.ratio for column in self._columns)

    @property
    def _columns(self) -> tuple[PoolEstimate, ...]:
        return self.group.columns

    def _seconds(self, column: PoolEstimate, count: int) -> float:
        """What `count` replicas do; of fewer than are ordered, those leave first who would come last."""
        horizon, surplus = self.lead_s + self.clear_s, column.view.desired - count
        staying = sorted(column.etas)[: max(len(column.etas) - max(surplus, 0), 0)]
        ready = column.ready - max(surplus - len(column.etas), 0)
        return ready * horizon + sum(max(horizon - eta, 0.0) for eta in staying) + max(-surplus, 0) * self.clear_s

    def _least(self, column: PoolEstimate, counts: dict[str, int], top: int) -> int:
        name = column.goal.name
        candidates = range(counts[name], top + 1)
        index = bisect_left(candidates, True, key=lambda count: self.fits({**counts, name: count}))
        return candidates[min(index, len(candidates) - 1)]


def fluid_of(group: RoleEstimate, picture: WorkEstimate, derate: float) -> FluidModel:
    """A group's fluid over the picture's horizon."""
    return FluidModel(group, picture.start_s, picture.clear_s, derate)

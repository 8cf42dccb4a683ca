"""Work as a fluid: does what flows in, and what is queued, fit through what is ready and what is pending? Pure.

Pending replicas count from their learned arrival on, so an order is never repeated because it has not arrived yet; new
ones count from one start on. The least counts that fit are the wanted ones.
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
    start_s: float
    clear_s: float
    derate: float

    @property
    def work(self) -> float:
        """Replica-seconds to be done within the horizon."""
        return self.group.backlog + self.group.demand * (self.start_s + self.clear_s)

    def least(self) -> dict[str, int]:
        """The least counts, none below what is ordered, that do the work; cheap pools are filled first.

        The last pool is unbounded: the constraints cap what is beyond every maximum, and report it.
        """
        counts = self.group.counts()
        for index, pool in enumerate(self.group.pools):
            last = index == len(self.group.pools) - 1
            top = UNBOUNDED if last else max(pool.spec.max, counts[pool.spec.name])
            counts[pool.spec.name] = self._least(pool, counts, top)
        return counts

    def fits(self, counts: dict[str, int]) -> bool:
        """Whether these counts do the work, a tenth of a replica forgiven."""
        return self.supply(counts) + TOLERANCE * self.clear_s * self.derate >= self.work

    def supply(self, counts: dict[str, int]) -> float:
        """Replica-seconds that can be done within the horizon."""
        share = usable(sum(counts.values())) * self.derate
        return share * sum(self._seconds(pool, counts[pool.spec.name]) / pool.ratio for pool in self.group.pools)

    def _seconds(self, pool: PoolEstimate, count: int) -> float:
        """Work of `count` replicas; of fewer than are ordered, those leave first that would be ready last."""
        horizon, surplus = self.start_s + self.clear_s, pool.status.desired - count
        staying = sorted(pool.etas)[: max(len(pool.etas) - max(surplus, 0), 0)]
        ready = pool.ready - max(surplus - len(pool.etas), 0)
        return ready * horizon + sum(max(horizon - eta, 0.0) for eta in staying) + max(-surplus, 0) * self.clear_s

    def _least(self, pool: PoolEstimate, counts: dict[str, int], top: int) -> int:
        name = pool.spec.name
        candidates = range(counts[name], top + 1)
        index = bisect_left(candidates, True, key=lambda count: self.fits({**counts, name: count}))
        return candidates[min(index, len(candidates) - 1)]


def fluid_of(group: RoleEstimate, work: WorkEstimate, derate: float) -> FluidModel:
    """A group's fluid over the estimate's horizon."""
    return FluidModel(group, work.start_s, work.clear_s, derate)

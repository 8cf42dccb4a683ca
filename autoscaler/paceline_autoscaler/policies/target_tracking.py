"""Target tracking on one signal, as the HorizontalPodAutoscaler does it: replicas = ceil(total / target).

Within a tenth of the target nothing changes; up at once; down to the highest need of five minutes. `queue` counts
waiting requests, `concurrency` open ones, `kv` the used share of the KV pages. Known weakness, as of an HPA: a queue is
an integral, so it keeps growing while replicas start, and more are ordered than needed.

`fixed`: every pool keeps its minimum.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, fsum
from typing import ClassVar

from paceline_autoscaler.model.demand_history import DemandHistories, DemandSample
from paceline_autoscaler.model.estimate import RoleEstimate, WorkEstimate
from paceline_autoscaler.types import MissingSignal, Recommendation, WorkerLoad
from paceline_core.registry.enums import ScaleReason

WINDOW_S = 300.0
TOLERANCE = 0.1
WAITING_PER_REPLICA = 5.0
OPEN_SHARE = 0.7
KV_SHARE = 0.7

Signal = Callable[[RoleEstimate, WorkEstimate], float]


@dataclass(frozen=True, slots=True)
class TargetTracking:
    """`signal` gives the number of replicas that would be exactly at the target; `name` is the policy's."""

    name: str
    signal: Signal
    state_type: ClassVar = DemandHistories

    def recommend(
        self, group: RoleEstimate, work: WorkEstimate, own: DemandHistories
    ) -> tuple[Recommendation, DemandHistories]:
        need = self.signal(group, work)
        complete = MissingSignal.GATEWAYS not in work.missing
        sample = DemandSample(work.observation.now, need, need, group.ready, complete)
        history = own.of(group.role).with_sample(sample, WINDOW_S)
        highest = history.peak if history.covered_s(sample.now) >= WINDOW_S else None
        own = own.having(history)
        words = f"{self.name} needs {need:.2f} replicas at the target"
        if need > group.desired * (1 + TOLERANCE):
            return Recommendation(spread(group, ceil(need)), ScaleReason.DEMAND, words), own
        if highest is not None and 0 < ceil(highest) < group.desired and need < group.desired * (1 - TOLERANCE):
            body = f"{words}, and {highest:.2f} at most in the last {WINDOW_S:.0f} s"
            return Recommendation(spread(group, ceil(highest)), ScaleReason.CONSOLIDATE, body), own
        return Recommendation(group.counts(), ScaleReason.STEADY, words), own


def spread(group: RoleEstimate, total: int) -> dict[str, int]:
    """Counts that sum to `total`: more go to the cheapest pool with room, fewer come from the most expensive one."""
    counts = group.counts()
    surplus = total - sum(counts.values())
    for pool in group.pools:
        if surplus > 0:
            taken = min(surplus, max(pool.spec.max - counts[pool.spec.name], 0))
            counts[pool.spec.name] += taken
            surplus -= taken
    for pool in reversed(group.pools):
        if surplus < 0:
            given = min(-surplus, max(counts[pool.spec.name] - pool.spec.min, 0))
            counts[pool.spec.name] -= given
            surplus += given
    counts[group.pools[-1].spec.name] += max(surplus, 0)
    return counts


def waiting(group: RoleEstimate, work: WorkEstimate) -> float:
    """All waiting requests, over five a replica."""
    queued = sum(max(cls.queued, cls.held) for cls in work.observation.demand.classes)
    return (queued + sum(load.waiting for load in _loads(group))) / WAITING_PER_REPLICA


def open_requests(group: RoleEstimate, work: WorkEstimate) -> float:
    """Requests open at the gateways, over 70 % of a replica's slots."""
    slots = max((load.slots for load in _loads(group)), default=0)
    in_flight = sum(cls.in_flight for cls in work.observation.demand.classes)
    return in_flight / (OPEN_SHARE * slots) if slots else 0.0


def kv_pages(group: RoleEstimate, work: WorkEstimate) -> float:
    """The used share of KV pages, summed over replicas, over 70 %."""
    del work
    return fsum(load.kv_used for load in _loads(group)) / KV_SHARE


def _loads(group: RoleEstimate) -> list[WorkerLoad]:
    return [load for pool in group.pools for load in pool.status.loads]


class Fixed:
    """Keeps every pool at its minimum; remembers nothing."""

    state_type = DemandHistories

    def recommend(
        self, group: RoleEstimate, work: WorkEstimate, own: DemandHistories
    ) -> tuple[Recommendation, DemandHistories]:
        minima = {pool.name: pool.min for pool in work.spec.pools}
        moved = any(pool.desired != minima[pool.name] for pool in work.observation.pools)
        counts = {pool.spec.name: pool.spec.min for pool in group.pools}
        reason = ScaleReason.BOUNDS if moved else ScaleReason.STEADY
        return Recommendation(counts, reason, "policy fixed keeps each pool at its minimum"), own

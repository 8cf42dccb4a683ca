"""Plans which replicas to start and which to drain, as a ReplicaSet does: pure, level-triggered, idempotent.

A worker that crashed is still a replica (it restarts with back-off); only the desired count adds or removes replicas.
Local mode executes the plan; on Kubernetes the ReplicaSet decides. Known hole: a drain that has begun is not cancelled;
a new replica is started instead.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from paceline_core.kube.cluster import ScaleTarget
from paceline_core.objects.workload_status import PoolCounts


@dataclass(frozen=True, slots=True)
class PoolReplica:
    """One worker of a pool. `ordinal` increases with each start in the pool.

    `unready`: it was ready and is not now, as a worker that the autoscaler has retired.
    """

    target: ScaleTarget
    ordinal: int
    ready: bool
    draining: bool
    unready: bool = False


@dataclass(frozen=True, slots=True)
class StartReplica:
    target: ScaleTarget


@dataclass(frozen=True, slots=True)
class DrainReplica:
    target: ScaleTarget
    ordinal: int


def plan_replicas(
    desired: Mapping[ScaleTarget, int], replicas: Iterable[PoolReplica]
) -> tuple[StartReplica | DrainReplica, ...]:
    """The starts and drains that bring each pool to its desired count."""
    active = [replica for replica in replicas if not replica.draining]
    have = Counter(replica.target for replica in active)
    starts = [StartReplica(target) for target, count in desired.items() for _ in range(count - have[target])]
    drains: list[DrainReplica] = []
    for target, count in desired.items():
        # retired replicas first, then those that have never been ready, then the newest: draining those loses least
        own = sorted((r for r in active if r.target == target), key=lambda r: (not r.unready, r.ready, -r.ordinal))
        drains += [DrainReplica(target, victim.ordinal) for victim in own[: max(have[target] - count, 0)]]
    return (*starts, *drains)


def count_replicas(target: ScaleTarget, replicas: Iterable[PoolReplica]) -> PoolCounts:
    """Count a pool's replicas by state; a draining one is neither ready nor starting."""
    members = [replica for replica in replicas if replica.target == target]
    draining = sum(replica.draining for replica in members)
    ready = sum(replica.ready and not replica.draining for replica in members)
    return PoolCounts(target.pool, ready, len(members) - draining - ready, draining)

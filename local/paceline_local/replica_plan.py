"""Which workers to start and which to drain, as a ReplicaSet decides it: pure, level-triggered, idempotent.

A worker that crashed is still a replica (it comes back with back-off); only the desired number adds or removes one.
Known hole: a drain that has begun is not taken back; a new replica is started instead.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from paceline_core.kube.cluster import ScaleTarget


@dataclass(frozen=True, slots=True)
class LocalReplica:
    """One worker as its pool sees it. `ordinal` grows with each start in the pool."""

    target: ScaleTarget
    ordinal: int
    ready: bool
    draining: bool


@dataclass(frozen=True, slots=True)
class Start:
    """One more replica is wanted."""

    target: ScaleTarget


@dataclass(frozen=True, slots=True)
class Drain:
    """This replica finishes its streams and leaves."""

    target: ScaleTarget
    ordinal: int


@dataclass(frozen=True, slots=True)
class Counts:
    """Replicas of a pool by state; one that is draining is neither ready nor starting."""

    ready: int = 0
    starting: int = 0
    draining: int = 0


def plan(desired: Mapping[ScaleTarget, int], replicas: Iterable[LocalReplica]) -> tuple[Start | Drain, ...]:
    """What takes the replicas to their desired numbers."""
    living = [replica for replica in replicas if not replica.draining]
    have = Counter(replica.target for replica in living)
    starts = [Start(target) for target, wanted in desired.items() for _ in range(wanted - have[target])]
    drains = [
        Drain(target, victim.ordinal)
        for target, wanted in desired.items()
        for victim in _victims((r for r in living if r.target == target), have[target] - wanted)
    ]
    return (*starts, *drains)


def count(target: ScaleTarget, replicas: Iterable[LocalReplica]) -> Counts:
    """How many of the pool's replicas are in which state."""
    mine = [replica for replica in replicas if replica.target == target]
    draining = sum(replica.draining for replica in mine)
    ready = sum(replica.ready and not replica.draining for replica in mine)
    return Counts(ready, len(mine) - draining - ready, draining)


def _victims(replicas: Iterable[LocalReplica], surplus: int) -> list[LocalReplica]:
    """Those not ready go first, then the newest: least is lost with them."""
    return sorted(replicas, key=lambda r: (r.ready, -r.ordinal))[: max(surplus, 0)]

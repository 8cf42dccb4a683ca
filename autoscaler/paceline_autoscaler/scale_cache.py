"""The replicas that the pools of one service order, as last read or written. Plain state, no requests.

A pass uses them for READ_S, so that a thousand services cost seventeen reads a second and not two hundred. They are
read again before each write, and as soon as the number of existing replicas changes to one that contradicts them. While
a number stays that does (a start that is blocked, a rollout's surge, another writer's edit made as soon as ours was
written), they are read again after 5, 10, 20 and 40 s.

A read that differs from what was known is another writer's edit, unless it is what a write ordered whose answer was
lost. The first read, and the first one after `forget`, has nothing to differ from: so a restart, a hand-over or a new
Deployment is no edit. Hole: an edit that neither the existing replicas nor a write reveal is found up to READ_S late.
"""

from collections.abc import Collection, Iterable, Mapping
from zlib import crc32

from paceline_core.kube import Endpoint, ObjectKey, Scale
from paceline_core.objects.naming import STABLE

READ_S = 60.0
_AGAIN_S = 5.0
Difference = tuple[str, int, int]
"""A pool, the replicas known before, and those read."""


def existing_replicas(endpoints: Iterable[Endpoint]) -> dict[str, int]:
    """The stable workers of each pool that are not ordered to end."""
    counts: dict[str, int] = {}
    for endpoint in endpoints:
        if endpoint.track == STABLE and not endpoint.terminating:
            counts[endpoint.pool] = counts.get(endpoint.pool, 0) + 1
    return counts


def spread(key: ObjectKey) -> float:
    """A service's own number from 0 to 1, so that what recurs for all services falls into different passes."""
    return crc32(str(key).encode()) / (1 << 32)


class ScaleCache:
    """Each pass calls `on_existing` first; times are in seconds of a monotonic clock."""

    def __init__(self, key: ObjectKey) -> None:
        self.scales: dict[str, Scale] = {}
        self._read_at: float | None = None
        self._early_s = spread(key) * READ_S
        self._existing: Mapping[str, int] = {}
        self._valid_s = READ_S
        self._known: dict[str, int] = {}
        self._unanswered: dict[str, int] = {}
        """What the last write of a pool ordered, if it failed: it may have been done."""

    def on_existing(self, existing: Mapping[str, int]) -> None:
        """This many replicas of each pool exist now (`existing_replicas`)."""
        contradicting = [pool for pool, scale in self.scales.items() if existing.get(pool, 0) != scale.replicas]
        if not contradicting:
            self._valid_s = READ_S
        elif any(existing.get(pool, 0) != self._existing.get(pool, 0) for pool in contradicting):
            self._valid_s = 0.0
        self._existing = existing

    def usable(self, pools: Collection[str], now: float) -> bool:
        """Whether a decision may rest on the scales without another read."""
        recent = self._read_at is not None and now - self._read_at < self._valid_s
        return recent and set(pools) == self.scales.keys()

    def on_read(self, scales: Mapping[str, Scale], now: float) -> list[Difference]:
        """All pools were read; returns the edits of other writers."""
        edits = [
            (pool, before, scale.replicas)
            for pool, scale in scales.items()
            if (before := self._known.get(pool, scale.replicas)) != scale.replicas
            and self._unanswered.get(pool) != scale.replicas
        ]
        self._read_at, self._early_s = now - self._early_s, 0.0
        self._valid_s = min(max(2 * self._valid_s, _AGAIN_S), READ_S)
        self.scales, self._unanswered = dict(scales), {}
        self._known = {pool: scale.replicas for pool, scale in scales.items()}
        return edits

    def on_write(self, pool: str, scale: Scale) -> None:
        """A write of this pool succeeded."""
        self._valid_s = _AGAIN_S
        self.scales[pool] = scale
        self._known[pool] = scale.replicas
        self._unanswered.pop(pool, None)

    def on_failed_write(self, pool: str, replicas: int) -> None:
        """A write failed: the next pass reads."""
        self._unanswered[pool] = replicas
        self.drop()

    def drop(self) -> None:
        """The scales are not current any more; what was known stays for comparison."""
        self.scales, self._read_at = {}, None

    def forget(self) -> None:
        """Another autoscaler may have written, or the Deployments are new: the next read has nothing to differ from."""
        self.drop()
        self._known, self._unanswered = {}, {}

"""What one tenant has at a gateway that shares with nobody: a bucket for each limit, full at first, refilled here.

The same rules as the shared Pool's without its exchange: a request larger than the limit goes when all is there and
leaves a debt, what comes back never lies on top of a full bucket. A test compares the two.
"""

from paceline_core.objects.resolved import ResolvedTenant
from paceline_gateway.quota.nouns import CLOSE, NOTHING, SLOTS, UNLIMITED, Vector
from paceline_gateway.quota.purse import LeasedBuckets


class LocalBuckets(LeasedBuckets):
    """All of a tenant's limits in one purse."""

    __slots__ = ()

    def __init__(self, tenant: ResolvedTenant, now: float) -> None:
        super().__init__(tenant, now)
        self.have = [0.0 if limit == UNLIMITED else limit for limit in self.limits]

    def bind(self, tenant: ResolvedTenant, now: float) -> None:
        """The object changed: new limits hold from now on, what is used stays used."""
        self.refresh(now)
        before, have = self.limits, list(self.have)
        super().bind(tenant, now)
        if before is not self.limits:
            for kind in self.kinds:
                old, new = before[kind], self.limits[kind]
                fresh = new - self.open if kind == SLOTS else new
                self.have[kind] = fresh if old == UNLIMITED else have[kind] + new - old

    def refresh(self, now: float) -> None:
        """Refill to now."""
        passed = now - self._told
        if passed <= 0:
            return
        self._told = now
        for kind in self.kinds:
            if kind != SLOTS:
                limit = self.limits[kind]
                self.have[kind] = min(self.have[kind] + passed * limit / 60.0, limit)

    def levels(self, now: float) -> Vector:
        """Nothing is left beside it."""
        self.refresh(now)
        return NOTHING

    def fits(self, need: Vector) -> bool:
        """Whether all of it is there, or as much as there can be."""
        for kind in self.kinds:
            have = self.have[kind]
            if have < need[kind] - CLOSE and (kind == SLOTS or not 0 < self.limits[kind] <= have + CLOSE):
                return False
        return True

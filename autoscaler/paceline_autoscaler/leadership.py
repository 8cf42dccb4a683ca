"""Which of several autoscalers acts: the one that holds the lease, and only while nobody else can believe to hold it.

A lease that cannot be renewed is used up to `DEADLINE_S` after the last renewal, which leaves a write that was begun
then the time to end before the lease runs out. One that somebody else holds ends all writes at once.
"""

from paceline_core.clock import Clock
from paceline_core.errors import PacelineError
from paceline_core.kube import Cluster
from paceline_core.telemetry import Complaints, Metrics, get_logger

LEASE = "paceline-autoscaler"
LEASE_TTL_S = 15.0
DEADLINE_S = 10.0
RENEW_S = 5.0
KIND = "Lease"
_FAULT = "the lease could not be renewed"
_log = get_logger(__name__)


class Leadership:
    """`name` is who we are; unique among autoscalers."""

    def __init__(self, name: str, cluster: Cluster, clock: Clock, metrics: Metrics) -> None:
        self._name = name
        self._cluster = cluster
        self._clock = clock
        self._metrics = metrics
        self._complaints = Complaints(_log)
        self._renewed: float | None = None
        self._elsewhere = False

    @property
    def elsewhere(self) -> bool:
        """Whether somebody else is known to hold it."""
        return self._elsewhere

    @property
    def held(self) -> bool:
        """Whether anything may be written now."""
        return self._renewed is not None and self._clock.monotonic() - self._renewed < DEADLINE_S

    async def renew(self) -> bool:
        """Take or keep the lease, when it is time to; whether anything may be written."""
        now = self._clock.monotonic()
        if self._renewed is not None and now - self._renewed < RENEW_S:
            return True
        try:
            held = await self._cluster.lease(LEASE, self._name, LEASE_TTL_S)
        except PacelineError as error:
            self._complaints.begin(_FAULT, str(error))
            self._metrics.gauge("paceline_autoscaler_cluster_current", KIND).set(0)
            return self.held
        self._complaints.end(_FAULT)
        self._metrics.gauge("paceline_autoscaler_cluster_current", KIND).set(1)
        if held is (self._renewed is None):
            _log.info("leading" if held else "somebody else leads now", extra={"holder": self._name})
        self._renewed, self._elsewhere = now if held else None, not held
        return held

    async def resign(self) -> None:
        """Give the lease back, so that the next one need not wait for its end."""
        if self._renewed is None:
            return
        try:
            await self._cluster.release(LEASE, self._name)
        except PacelineError as error:
            _log.info("the lease runs out by itself", extra={"reason": str(error)})
        self._renewed = None

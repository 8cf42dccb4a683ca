"""Who may write: the holder of a Lease, as long as it could renew in time.

Known times only: a renewal counts from before its request is sent, so the server's copy is never older than ours. A
lease that cannot be renewed is used for `USABLE` of its life; the rest is for a write that is under way to end before
anybody else may begin. One that somebody else holds ends all writes at once.
Known hole: what was sent in time and is longer than that on its way arrives beside the next leader's writes.
"""

from typing import Final, Protocol

from paceline_core.clock import Clock
from paceline_core.errors import PacelineError
from paceline_core.telemetry import FaultLog, get_logger

USABLE: Final = 2 / 3
_FAULT = "the lease could not be renewed"
_log = get_logger(__name__)


class LeaseApi(Protocol):
    """What is asked of the API server; a Cluster can, and so can Leases alone."""

    async def lease(self, name: str, holder: str, ttl_s: float) -> bool:
        """Take or renew; False while somebody else holds it."""
        ...

    async def release(self, name: str, holder: str) -> None:
        """Give it back."""
        ...


class LeaderElector:
    """`renew` the lease `name` again and again; `leads` says at any time whether to write. `holder` is unique."""

    def __init__(self, api: LeaseApi, name: str, holder: str, ttl_s: float, clock: Clock) -> None:
        self.elsewhere = False
        """Whether somebody else is known to hold it."""
        self._api = api
        self._name = name
        self._holder = holder
        self._ttl_s = ttl_s
        self._clock = clock
        self._complaints = FaultLog(_log)
        self._renewed: float | None = None
        self._told = False

    @property
    def leads(self) -> bool:
        """Whether the lease is ours and was renewed in time."""
        return self.renewed_within(self._ttl_s * USABLE)

    @property
    def answered(self) -> bool:
        """Whether the last try was answered, whatever the answer."""
        return not self._complaints.standing

    def renewed_within(self, seconds: float) -> bool:
        """Whether the lease is ours and was renewed so lately."""
        return self._renewed is not None and self._clock.monotonic() - self._renewed < seconds

    async def renew(self) -> bool:
        """Take or renew it once; whether the answer was that it is ours."""
        asked, held = self._clock.monotonic(), False
        try:
            held = await self._api.lease(self._name, self._holder, self._ttl_s)
        except PacelineError as error:
            self._complaints.begin(_FAULT, str(error))
        else:
            self._complaints.end(_FAULT)
            self._renewed, self.elsewhere = asked if held else None, not held
        self._tell()
        return held

    async def resign(self) -> None:
        """Give it back, so that the next one need not wait for its end."""
        if self._renewed is None:
            return
        self._renewed = None
        try:
            await self._api.release(self._name, self._holder)
        except PacelineError as error:
            _log.info("the lease runs out by itself", extra={"reason": str(error)})

    def _tell(self) -> None:
        if self.leads is not self._told:
            self._told = self.leads
            _log.info("leading" if self._told else "standing by", extra={"holder": self._holder})

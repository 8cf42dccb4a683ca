"""Who may write: the holder of the Lease, as long as it could renew in time.

Known times only: `renewed` is taken before the request is sent, so the server's copy is never older than ours, and this
process stops writing `MARGIN` of the lease's life before anybody else may take it. A write that is under way then may
still arrive, and two leaders do no harm: names are fixed, updates are guarded by uid, first applies never force.
"""

import asyncio
from typing import Protocol

from paceline_core.clock import Clock
from paceline_core.errors import PacelineError
from paceline_core.telemetry import Metrics, get_logger

LEASE = "paceline-operator"
MARGIN = 1 / 3
RETRY_S = 2.0
_log = get_logger(__name__)


class NotLeading(Exception):
    """This process may not write now; the key waits until somebody may."""


class Leases(Protocol):
    """What is asked of the API server."""

    async def take(self, name: str, holder: str, ttl_s: float) -> bool:
        """Take or renew; False while somebody else holds it."""
        ...

    async def release(self, name: str, holder: str) -> None:
        """Give it back."""
        ...


class Leadership:
    """`run` it; `leads` says whether to write, `led` waits until so."""

    def __init__(self, leases: Leases, holder: str, ttl_s: float, clock: Clock, metrics: Metrics) -> None:
        self._leases = leases
        self._holder = holder
        self._ttl_s = ttl_s
        self._clock = clock
        self._gauge = metrics.gauge("paceline_operator_leader")
        self._renewed: float | None = None
        self._won = asyncio.Event()

    @property
    def leads(self) -> bool:
        """Whether the lease is ours and was renewed in time."""
        now = self._clock.monotonic()
        return self._renewed is not None and now - self._renewed < self._ttl_s * (1 - MARGIN)

    def check(self) -> None:
        """Raises NotLeading."""
        if not self.leads:
            raise NotLeading

    async def led(self) -> None:
        """Return when the lease is ours."""
        while not self.leads:
            self._won.clear()
            await self._won.wait()

    async def run(self) -> None:
        """Take it, renew it, try again, until cancelled."""
        while True:
            held = await self.attempt()
            await self._clock.sleep(self._ttl_s / 5 if held else min(RETRY_S, self._ttl_s / 5))

    async def release(self) -> None:
        """Give it back, so that the next one need not wait."""
        if self._renewed is None:
            return
        self._renewed = None
        try:
            await self._leases.release(LEASE, self._holder)
        except PacelineError as error:
            _log.info("the lease runs out by itself", extra={"reason": str(error)})

    async def attempt(self) -> bool:
        """Take or renew it once; whether the API server said that it is ours."""
        before, asked = self.leads, self._clock.monotonic()
        held = False
        try:
            held = await self._leases.take(LEASE, self._holder, self._ttl_s)
            self._renewed = asked if held else None
        except PacelineError as error:
            _log.warning("the lease could not be renewed", extra={"reason": str(error)})
        self._tell(before)
        return held

    def _tell(self, before: bool) -> None:
        self._gauge.set(self.leads)
        if self.leads:
            self._won.set()
        if self.leads != before:
            _log.info("leading" if self.leads else "standing by", extra={"holder": self._holder})

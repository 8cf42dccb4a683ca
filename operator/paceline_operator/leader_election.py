"""Who may write: this operator, while it leads. The lease is renewed in the background, every write asks first.

A write that is under way when the lease runs out may still arrive, and two leaders do no harm: names are fixed, updates
are guarded by uid, first applies never force.
"""

import asyncio

from paceline_core.clock import Clock
from paceline_core.kube.leader_election import LeaderElector, LeaseApi
from paceline_core.telemetry import Metrics

LEASE = "paceline-operator"
RETRY_S = 2.0


class NotLeading(Exception):
    """This process may not write now; the key waits until somebody may."""


class LeaderElection:
    """`run` it; `leads` says whether to write, `led` waits until so."""

    def __init__(self, leases: LeaseApi, holder: str, ttl_s: float, clock: Clock, metrics: Metrics) -> None:
        self._candidate = LeaderElector(leases, LEASE, holder, ttl_s, clock)
        self._pause_s = ttl_s / 5
        self._clock = clock
        self._gauge = metrics.gauge("paceline_operator_leader")
        self._won = asyncio.Event()

    @property
    def leads(self) -> bool:
        """Whether the lease is ours and was renewed in time."""
        return self._candidate.leads

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
            await self._clock.sleep(self._pause_s if held else min(RETRY_S, self._pause_s))

    async def attempt(self) -> bool:
        """Take or renew it once; whether the API server said that it is ours."""
        held = await self._candidate.renew()
        self._gauge.set(self.leads)
        if self.leads:
            self._won.set()
        return held

    async def release(self) -> None:
        """Give it back, so that the next one need not wait."""
        await self._candidate.resign()

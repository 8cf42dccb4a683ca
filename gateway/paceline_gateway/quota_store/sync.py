"""Carries lease requests to the shared store and grants back: all pending ones in one round trip, one trip at a time.

A failed exchange is not repeated at once: `QuotaManager` follows each tenant's `onStoreFailure` until a probe succeeds,
then sends again what was in doubt. So a request waits for two round trips at most: the one under way and its own.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Mapping, Sequence
from typing import Final, Protocol, TypeVar

from paceline_core.clock import Clock
from paceline_core.errors import Unreachable
from paceline_core.process import cancel, ended
from paceline_core.telemetry import FaultLog, Metrics, get_logger
from paceline_gateway.queueing.shared_fairness import SharedFairness
from paceline_gateway.quota.bucket_store import TTL_S
from paceline_gateway.quota.manager import QuotaManager
from paceline_gateway.quota.types import LeaseGrant, LeaseRequest

SUMS: Final = 4096
"""The most sums of what tenants were served that a store keeps; beyond that it clears all of them."""
T = TypeVar("T")
BATCH = 256
HELLO_S = TTL_S / 5
SHARE_S = 1.0
"""Seconds between two exchanges of what tenants were served."""
PROBE_S = (0.1, 0.2, 0.5, 1.0, 2.0)
_FAULT = "the store of quota counters cannot be reached; each tenant's onStoreFailure is followed"
_log = get_logger(__name__)


class CounterStore(Protocol):
    """The shared counters. Every call ends within its limit or raises Unreachable with a plain message."""

    def start(self) -> None:
        """Start background work."""
        ...

    async def hello(self, holder: str, ttl_s: float) -> int:
        """Announce that this gateway is alive for `ttl_s`, or leaves (0); returns the number of gateways."""
        ...

    async def exchange(self, asks: Sequence[LeaseRequest]) -> list[LeaseGrant]:
        """Apply lease requests, each once however often it is sent, and answer in their order."""
        ...

    async def share(self, served: Mapping[str, float]) -> Mapping[str, float]:
        """Add what tenants were served here, and return the sums of all gateways; applied once, never sent again."""
        ...

    async def close(self) -> None:
        """Close everything."""
        ...


class QuotaSync:
    """One gateway's connection to the shared store. `wait_s`: the longest that a request may wait for it."""

    def __init__(self, store: CounterStore, holder: str, wait_s: float, clock: Clock, metrics: Metrics) -> None:
        self._store = store
        self._holder = holder
        self._limit_s = wait_s / 2
        self._clock = clock
        self._asks: list[LeaseRequest] = []
        self._wake = asyncio.Event()
        self._carried = asyncio.Event()
        self._hello_at = self._share_at = 0.0
        self._common: SharedFairness | None = None
        self._complaints = FaultLog(_log)
        self._task: asyncio.Task[None] | None = None
        self._current = metrics.gauge("paceline_quota_store_up")
        self._seconds = metrics.histogram("paceline_quota_sync_seconds")
        self._failures = metrics.counter("paceline_quota_sync_failures_total")

    def send(self, ask: LeaseRequest) -> None:
        self._asks.append(ask)
        self._wake.set()

    def start(self, quotas: QuotaManager, common: SharedFairness | None = None) -> None:
        """Start the exchanges; with `common` also exchange what tenants were served."""
        self._common = common
        self._store.start()
        self._task = asyncio.create_task(self._run(quotas))

    async def wait(self) -> None:
        """Never return; raise what ended the task: without its quota exchange a gateway must stop."""
        if self._task is not None:
            await ended(self._task)

    async def close(self, quotas: QuotaManager) -> None:
        """Give back what this gateway holds, as far as that is possible now, and stop."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._limit_s * 2):
                while not quotas.leave(self._clock.monotonic()):
                    self._carried.clear()
                    await self._carried.wait()
        if self._task is not None:
            await cancel(self._task)
        with contextlib.suppress(Unreachable):
            await self._bounded(self._store.hello(self._holder, 0.0))
        await self._store.close()

    async def _run(self, quotas: QuotaManager) -> None:
        failures = 0
        while True:
            try:
                await self._round(quotas)
                failures = 0
            except Unreachable as error:
                self._failures.inc()
                self._current.set(0)
                self._complaints.begin(_FAULT, str(error))
                self._asks.clear()
                self._wake.clear()
                if self._common is not None:
                    self._common.lost()
                quotas.lost(self._clock.monotonic())
                await self._clock.sleep(PROBE_S[min(failures, len(PROBE_S) - 1)])
                failures += 1

    async def _round(self, quotas: QuotaManager) -> None:
        """Announce this gateway when that is due, then carry the pending lease requests."""
        now = self._clock.monotonic()
        if quotas.away or now >= self._hello_at:
            gateways = await self._bounded(self._store.hello(self._holder, TTL_S))
            self._hello_at = now + HELLO_S
            self._complaints.end(_FAULT)
            self._current.set(1)
            quotas.found(gateways, self._clock.monotonic())
        with contextlib.suppress(TimeoutError):
            due = self._hello_at if self._common is None else min(self._hello_at, self._share_at)
            async with asyncio.timeout(max(due - now, 0.0)):
                await self._wake.wait()
        self._wake.clear()
        while self._asks:
            batch, self._asks = self._asks[:BATCH], self._asks[BATCH:]
            began = self._clock.monotonic()
            grants = await self._bounded(self._store.exchange(batch))
            now = self._clock.monotonic()
            self._seconds.observe(now - began)
            for ask, grant in zip(batch, grants, strict=True):
                quotas.answered(ask, grant, now)
            self._carried.set()
        if self._common is not None and self._clock.monotonic() >= self._share_at:
            self._share_at = self._clock.monotonic() + SHARE_S
            served = self._common.report()
            if quotas.gateways > 1:
                self._common.heard(await self._bounded(self._store.share(served)))
            else:
                self._common.lost()

    async def _bounded(self, call: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(self._limit_s):
                return await call
        except TimeoutError:
            raise Unreachable(f"no answer within {self._limit_s:g} s") from None

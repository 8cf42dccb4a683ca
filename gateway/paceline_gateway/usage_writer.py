"""Writes the ledger's numbers into the Tenants' status: every minute what has changed, and everything at the end.

It makes one write at a time and at most `BATCH` a second, so that thousands of tenants cause no burst; at the end it
makes several at once. While the API server is unreachable, counting continues, one log line says so, and writes wait.
"""

import asyncio
import contextlib
from typing import Final

from paceline_core.clock import Clock
from paceline_core.errors import Conflict, PacelineError
from paceline_core.kube import Cluster, ObjectKey
from paceline_core.objects.metadata import TENANT
from paceline_core.process import cancel, ended
from paceline_core.telemetry import FaultLog, get_logger
from paceline_gateway.usage.ledger import UsageLedger
from paceline_gateway.usage.types import status_of

EVERY_S: Final = 60.0
TICK_S: Final = 1.0
BATCH: Final = 20
AGAIN_S: Final = 5.0
FLUSH_S: Final = 4.0
FLUSH_TICK_S: Final = 0.05
FLUSH_BATCH: Final = 8
MANAGER: Final = "paceline-gateway"
_SUBJECT = "usage cannot be written; it is kept, and written later"
_log = get_logger(__name__)


class UsageWriter:
    """`namespace` is where Tenants are."""

    def __init__(
        self, ledger: UsageLedger, cluster: Cluster, namespace: str, clock: Clock, every_s: float = EVERY_S
    ) -> None:
        self._ledger = ledger
        self._cluster = cluster
        self._namespace = namespace
        self._clock = clock
        self._every_s = every_s
        self._complaints = FaultLog(_log)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    async def wait(self) -> None:
        """Never return; raise what ended the task."""
        if self._task is not None:
            await ended(self._task)

    async def close(self) -> None:
        """Write everything that is left, within a time limit; the watch of Tenants must still run."""
        if self._task is not None:
            await cancel(self._task)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_S):
                while list(self._ledger.holds(self._clock.monotonic())):
                    names = self._ledger.due(self._clock.monotonic(), 0.0)[:FLUSH_BATCH]
                    if not all(await asyncio.gather(*(self._write(tenant) for tenant in names))) or not names:
                        await self._clock.sleep(FLUSH_TICK_S)
        left = len(list(self._ledger.holds(self._clock.monotonic())))
        if left:
            _log.error("usage was not written before the end", extra={"tenants": left})

    async def _run(self) -> None:
        """Write what is due; pause for longer while the API server refuses."""
        while True:
            rest_s = TICK_S
            for tenant in self._ledger.due(self._clock.monotonic(), self._every_s)[:BATCH]:
                if not await self._write(tenant):
                    rest_s = AGAIN_S
                    break
            await self._clock.sleep(rest_s)

    async def _write(self, tenant: str) -> bool:
        """Write one tenant's numbers; False if the API server refused."""
        write = self._ledger.begin(tenant, self._clock.utc(), self._clock.monotonic())
        if write is None:
            return True
        status, key = status_of(write.entries, write.month), ObjectKey(self._namespace, tenant)
        try:
            await self._cluster.patch_status(TENANT, key, status, MANAGER, write.version)
        except Conflict:
            self._ledger.contested(tenant)
        except asyncio.CancelledError:
            self._ledger.unanswered(tenant)
            raise
        except PacelineError as error:
            self._ledger.unanswered(tenant)
            self._complaints.begin(_SUBJECT, str(error))
            return False
        else:
            self._ledger.written(tenant)
        self._complaints.end(_SUBJECT)
        return True

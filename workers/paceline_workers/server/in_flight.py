"""Who may come in, and when everybody has gone: the worker's count of open requests, and its word on draining."""

import asyncio
import contextlib
from collections.abc import Iterator

from paceline_core.errors import Code, RequestError

RETRY_AFTER_S = 1.0


class InFlightLimiter:
    """Counts requests from their headers to their last byte; refuses them when draining or full."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._gone = asyncio.Event()
        self._gone.set()
        self.open = 0
        self.draining = False

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Hold a place for the length of the block. Raises RequestError `draining` or `queue_full`."""
        if self.draining:
            raise RequestError(Code.DRAINING, "This worker is shutting down.", retry_after=RETRY_AFTER_S)
        if self.open >= self._limit:
            raise RequestError(
                Code.QUEUE_FULL, f"{self._limit} requests are open on this worker.", retry_after=RETRY_AFTER_S
            )
        self.open += 1
        self._gone.clear()
        try:
            yield
        finally:
            self.open -= 1
            if not self.open:
                self._gone.set()

    def drain(self) -> None:
        """Refuse all that comes from now on."""
        self.draining = True

    async def gone(self, seconds: float) -> bool:
        """Wait until nobody is inside; False when it takes longer than `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                await self._gone.wait()
        except TimeoutError:
            return False
        return True

"""How many writes a second the API server gets from this process: one token bucket, the most urgent waiter first.

Reads are not counted: there are few. A 429 with Retry-After stops everybody for that long, since the server speaks for
itself, not for one object. Invariant: in any T seconds at most `burst + rate * T` tokens are given out.
"""

import asyncio
import heapq
import itertools
from dataclasses import dataclass

from paceline_core.clock import Clock
from paceline_core.process import cancel
from paceline_operator.state.workqueue import Priority

_ROUNDING = 1e-9


@dataclass(slots=True)
class TokenBucket:
    """Tokens that flow in at `rate` a second up to `burst`; pure."""

    rate: float
    burst: float
    tokens: float
    filled_at: float

    def take(self, now: float) -> float:
        """Take one token: 0, or how many seconds until there will be one."""
        self.tokens = min(self.burst, self.tokens + max(now - self.filled_at, 0.0) * self.rate)
        self.filled_at = max(now, self.filled_at)
        if self.tokens >= 1.0 - _ROUNDING:
            self.tokens -= 1.0
            return 0.0
        return self.filled_at - now + (1.0 - self.tokens) / self.rate

    def stop(self, now: float, seconds: float) -> None:
        self.tokens = min(self.tokens, 0.0)
        self.filled_at = max(self.filled_at, now + seconds)


class WriteRateLimiter:
    def __init__(self, clock: Clock, rate: float, burst: float) -> None:
        self._clock = clock
        self._bucket = TokenBucket(rate, burst, burst, clock.monotonic())
        self._waiters: list[tuple[Priority, int, asyncio.Future[None]]] = []
        self._tickets = itertools.count()
        self._serving: asyncio.Task[None] | None = None

    async def spend(self, priority: Priority) -> None:
        if not self._waiters and self._bucket.take(self._clock.monotonic()) == 0.0:
            return
        turn = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiters, (priority, next(self._tickets), turn))
        if self._serving is None:
            self._serving = asyncio.create_task(self._serve())
        await turn

    def stop(self, seconds: float) -> None:
        self._bucket.stop(self._clock.monotonic(), seconds)

    async def close(self) -> None:
        if self._serving is not None:
            await cancel(self._serving)

    async def _serve(self) -> None:
        try:
            while self._waiters:
                if self._waiters[0][2].done():
                    heapq.heappop(self._waiters)
                    continue
                pause = self._bucket.take(self._clock.monotonic())
                if pause > 0.0:
                    await self._clock.sleep(pause)
                    continue
                heapq.heappop(self._waiters)[2].set_result(None)
        finally:
            self._serving = None

"""Time as an argument: pure code takes `now`, the code around it takes a Clock, tests and the simulator a ManualClock.

The two kinds of time never mix: `monotonic` (seconds, for every difference) and `utc` (for what leaves the process).
"""

import asyncio
import time
from datetime import UTC, datetime, timedelta
from typing import Protocol


class Clock(Protocol):
    def monotonic(self) -> float:
        """Seconds since an arbitrary point; never goes back."""
        ...

    def utc(self) -> datetime:
        """Now, with time zone UTC."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after `seconds` of this clock's time."""
        ...


class SystemClock:
    monotonic = staticmethod(time.monotonic)
    """Seconds of the machine's monotonic clock; the function itself, since a gateway calls it many times a request."""

    def utc(self) -> datetime:
        return datetime.now(UTC)  # noqa: TID251 - the one place that reads it

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class ManualClock:
    """A clock that moves only when a caller moves it: `sleep` moves it and yields to the loop once."""

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._start = start
        self._elapsed = 0.0

    def monotonic(self) -> float:
        return self._elapsed

    def utc(self) -> datetime:
        return self._start + timedelta(seconds=self._elapsed)

    def advance(self, seconds: float) -> None:
        self._elapsed += seconds

    async def sleep(self, seconds: float) -> None:
        self.advance(seconds)
        await asyncio.sleep(0)


def rfc3339(moment: datetime) -> str:
    """`2026-01-31T12:00:00Z`: the format of every wall time that leaves the process."""
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")

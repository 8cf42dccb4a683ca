"""Waiting for something real to happen, with a limit."""

import asyncio
import time
from collections.abc import Callable

PAUSE_S = 0.02


async def until(condition: Callable[[], object], limit_s: float = 30.0) -> None:
    """Return when the condition holds; a TimeoutError after the limit."""
    async with asyncio.timeout(limit_s):
        while not condition():  # noqa: ASYNC110 - processes and files set no Event
            await asyncio.sleep(PAUSE_S)


def wait_until(condition: Callable[[], object], limit_s: float = 30.0) -> None:
    """The same without a loop."""
    end = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {limit_s:g} s")
        time.sleep(PAUSE_S)

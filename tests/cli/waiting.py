"""Waiting for something real to happen, with a limit."""

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], object], limit_s: float = 30.0) -> None:
    """Return when the condition holds; a TimeoutError after the limit."""
    async with asyncio.timeout(limit_s):
        while not condition():  # noqa: ASYNC110 - processes and files set no Event
            await asyncio.sleep(0.02)

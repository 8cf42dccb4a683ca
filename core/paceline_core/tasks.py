"""Idioms of asyncio, written once: end tasks and wait for their end; wait for whichever comes first."""

import asyncio
from collections.abc import Coroutine
from typing import Any


async def cancel(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel all and return when all have ended; what they raised is dropped."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def ended(*tasks: "asyncio.Task[Any]") -> None:
    """Return when one of them has ended, and raise what it raised; who stops waiting stops none of them."""
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in done:
        task.result()


async def first(*waits: Coroutine[Any, Any, Any]) -> None:
    """Return when one of them does, the others cancelled; raise what it raised."""
    tasks = [asyncio.create_task(wait) for wait in waits]
    try:
        await ended(*tasks)
    finally:
        await cancel(*tasks)

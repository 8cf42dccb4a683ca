"""A stack for one run alone: `paceline up` as a child, in a state directory that is removed afterwards.

It is a process of its own, so that supervising does not share the generator's event loop; and a process group of its
own, so that a Ctrl-C reaches it once, from here, and its streams are finished.
"""

import asyncio
import json
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from paceline_core.errors import Unreachable

READY_LIMIT_S = 180.0
STOP_LIMIT_S = 120.0


@asynccontextmanager
async def temporary_stack(file: Path) -> AsyncIterator[Path]:
    """Start what `file` asks for on a free port; yields the state directory once all is ready. Raises Unreachable."""
    with tempfile.TemporaryDirectory(prefix="paceline-bench-") as scratch:
        state = Path(scratch) / "state"
        arguments = ("up", "-f", str(file), "--state", str(state), "--port", "0", "--json")
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "paceline_cli", *arguments, stdout=asyncio.subprocess.PIPE, process_group=0
        )
        try:
            reader = await _ready(child)
            yield state
            reader.cancel()
        finally:
            await _stop(child)


async def _ready(child: asyncio.subprocess.Process) -> asyncio.Task[None]:
    """Wait for the line that says ready; the task goes on reading, so that the child never blocks on its output."""
    ready = asyncio.Event()
    reader = asyncio.create_task(_read(child, ready))
    waiter = asyncio.create_task(ready.wait())
    await asyncio.wait([reader, waiter], timeout=READY_LIMIT_S, return_when=asyncio.FIRST_COMPLETED)
    waiter.cancel()
    if not ready.is_set():
        reader.cancel()
        raise Unreachable(f"the stack was not ready within {READY_LIMIT_S:g} s; what it said stands above")
    return reader


async def _read(child: asyncio.subprocess.Process, ready: asyncio.Event) -> None:
    assert child.stdout is not None
    async for line in child.stdout:
        with suppress(ValueError):
            if json.loads(line).get("event") == "ready":
                ready.set()


async def _stop(child: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        child.send_signal(signal.SIGINT)
    try:
        async with asyncio.timeout(STOP_LIMIT_S):
            await child.wait()
    except TimeoutError:
        child.kill()
        await child.wait()

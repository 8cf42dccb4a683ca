"""The stack to measure: a running one, found by its state directory, or a temporary one.

A temporary stack is `paceline up` as a child, in a state directory that is removed afterwards. It is a process of its
own, so that it does not share the generator's event loop, and a process group of its own, so that a Ctrl-C reaches it
once, from here, and its streams are finished.
"""

import asyncio
import json
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline_core.clock import Clock
from paceline_core.errors import InvalidInput, Unreachable
from paceline_core.kube import Cluster, Listed
from paceline_core.kube.local import LocalCluster
from paceline_core.objects import InferenceService, ResolvedService, read, resolve
from paceline_core.objects.metadata import INFERENCE_SERVICE
from paceline_local.keys import KeyFile
from paceline_local.rundir import RunRecord, read_record

LIST_LIMIT_S = 5.0


@dataclass(frozen=True, slots=True)
class Attached:
    """A running stack, and the one service that a run measures."""

    record: RunRecord
    key: str
    service: ResolvedService
    cluster: LocalCluster


async def attach(state: Path, model: str | None, clock: Clock, limit_s: float = LIST_LIMIT_S) -> Attached:
    """Use the run in `state`; raises NotFound if nothing runs there, InvalidInput if the model is ambiguous."""
    record = read_record(state)
    cluster = LocalCluster(Path(record.socket), clock)
    services = [resolve(read(InferenceService, manifest)) for manifest in await listed(cluster, limit_s)]
    return Attached(record, KeyFile(state).local(clock), choose(services, model), cluster)


async def listed(cluster: Cluster, limit_s: float) -> Sequence[dict[str, Any]]:
    """All InferenceServices; raises Unreachable."""
    try:
        async with asyncio.timeout(limit_s):
            async for event in cluster.watch(INFERENCE_SERVICE):
                if isinstance(event, Listed):
                    return event.items
    except TimeoutError:
        pass
    raise Unreachable(f"the supervisor did not list its services within {limit_s:g} s; is it still up?")


def choose(services: Sequence[ResolvedService], model: str | None) -> ResolvedService:
    """The service with that name, or the only one."""
    names = ", ".join(service.model.served_name for service in services)
    found = [service for service in services if model in (None, service.model.served_name, service.key)]
    if len(found) == 1:
        return found[0]
    if model is None:
        raise InvalidInput("model", f"name one of the models that are served: {names}")
    raise InvalidInput("model", f"{model!r} is not served here; the models are: {names}")


READY_LIMIT_S = 180.0
STOP_LIMIT_S = 120.0


@asynccontextmanager
async def temporary_stack(file: Path) -> AsyncIterator[Path]:
    """Start the manifests in `file` on a free port; yields the state directory once ready. Raises Unreachable."""
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
            with suppress(ProcessLookupError):
                child.send_signal(signal.SIGINT)
            try:
                async with asyncio.timeout(STOP_LIMIT_S):
                    await child.wait()
            except TimeoutError:
                child.kill()
                await child.wait()


async def _ready(child: asyncio.subprocess.Process) -> asyncio.Task[None]:
    """Wait for the line that says ready; the task keeps reading, so that the child never blocks on its output."""
    ready = asyncio.Event()

    async def read() -> None:
        assert child.stdout is not None
        async for line in child.stdout:
            with suppress(ValueError):
                if json.loads(line).get("event") == "ready":
                    ready.set()

    reader = asyncio.create_task(read())
    waiter = asyncio.create_task(ready.wait())
    await asyncio.wait([reader, waiter], timeout=READY_LIMIT_S, return_when=asyncio.FIRST_COMPLETED)
    waiter.cancel()
    if not ready.is_set():
        reader.cancel()
        raise Unreachable(f"the stack was not ready within {READY_LIMIT_S:g} s; its output is above")
    return reader

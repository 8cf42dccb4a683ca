"""How soon a worker learns that its client has gone, streamed or not: from the close to the worker's read of it.

Client, gateway and worker share one loop, so nothing but the gateway's own work lies between the two moments.
"""

import asyncio
import json
import tempfile
import time
from pathlib import Path

import uvloop
from benchmarks.gateway.options import Options
from benchmarks.gateway.stage import Stage
from benchmarks.harness import Bar, Measured, Row, median_row, quantile
from tests.gateway.stand import CHAT, Stand, gateway, until
from tests.gateway.worker_double import Script, Seen, WorkerDouble

LEAVERS, QUICK_LEAVERS = 500, 50
LIMIT = Bar(50)


def leaving(_: Stage, options: Options) -> Measured:
    """Medians and 99th percentiles."""
    count = QUICK_LEAVERS if options.quick else LEAVERS
    times = uvloop.run(_both(count))
    rows = [row for name, taken in times.items() for row in _rows(name, taken)]
    return rows, {"leavers": count, "milliseconds": {name: sorted(taken) for name, taken in times.items()}}


def _rows(name: str, taken: list[float]) -> list[Row]:
    last = Row(f"client gone, {name}: p99", quantile(taken, 0.99), "ms", bar=LIMIT)
    return [median_row(f"client gone, {name}: median", taken, "ms"), last]


async def _both(count: int) -> dict[str, list[float]]:
    with tempfile.TemporaryDirectory() as folder:
        async with gateway(Path(folder)) as stand:
            worker = await WorkerDouble().start()
            worker.script = lambda seen: Script(stall_after=2 if json.loads(seen.body).get("stream") else 0)
            stand.work(worker)
            await stand.ready()
            names = {"streamed": True, "not streamed": False}
            times = {
                name: [await _leave(stand, worker, stream=stream) for _ in range(count)]
                for name, stream in names.items()
            }
            await worker.stop()
            return times


async def _leave(stand: Stand, worker: WorkerDouble, *, stream: bool) -> float:
    """Milliseconds from one client's close to the worker's knowledge."""
    before = len(worker.seen)
    reader, writer = await asyncio.open_connection("127.0.0.1", stand.port)
    body = json.dumps(CHAT | {"stream": stream}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {stand.key}\r\n"
    writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    await until(lambda: len(worker.seen) > before)
    if stream:
        await reader.readuntil(b'"content":"Time"')
    return await _closed(worker.seen[-1], writer)


async def _closed(seen: Seen, writer: asyncio.StreamWriter) -> float:
    begin = time.perf_counter()
    writer.close()
    await seen.closed.wait()
    return (time.perf_counter() - begin) * 1e3

"""What a streamed token costs the worker's API process, in processor time: 32 streams from an emulated engine.

The peer is the floor: a bare uvloop server that sends as many bytes as often to as many connections and does nothing
else, which is the kernel's loopback. Both take turns. Besides, how long a scrape holds the streams up, against
prometheus-client's own way to write the same series.
"""

import asyncio
import json
import multiprocessing
import tempfile
import time
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import psutil
import uvloop
from benchmarks.harness import Bar, Measured, Row, main, median_row
from prometheus_client import generate_latest
from tests.worker.processes import EMULATED_H100, WorkerProcess, worker_process

from paceline_core.registry import METRICS, Kind
from paceline_core.telemetry import Metrics, exposition

STREAMS, TOKENS, PACE_S = 32, 400, 0.0067
ROUNDS, QUICK_ROUNDS = 7, 2
SCRAPES = 50
LIMIT = Bar(100)


def measure(quick: bool) -> Measured:
    """Rows, and bytes per token."""
    with tempfile.TemporaryDirectory() as folder, worker_process(Path(folder), engine=EMULATED_H100) as worker:
        worker.ready()
        size = asyncio.run(_worker_round(worker))[1] // (STREAMS * TOKENS)
        turns = [_turn(worker, size) for _ in range(QUICK_ROUNDS if quick else ROUNDS)]
    api, engine, floor = ([turn[place] for turn in turns] for place in range(3))
    rows = [
        median_row("API process, CPU per streamed token", api, "us", LIMIT, peer=median(floor)),
        median_row("emulated engine process, CPU per token", engine, "us"),
        _scrape(),
    ]
    return rows, {"streams": STREAMS, "tokens": TOKENS, "bytes_per_token": size, "floor_us": sorted(floor)}


def _turn(worker: WorkerProcess, size: int) -> tuple[float, float, float]:
    """Microseconds per token: API process, engine process, floor."""
    processes = (psutil.Process(worker.process.pid), psutil.Process(worker.engine.pid))
    before = [_cpu(process) for process in processes]
    asyncio.run(_worker_round(worker))
    api, engine = (_cpu(process) - began for process, began in zip(processes, before, strict=True))
    scale = 1e6 / (STREAMS * TOKENS)
    return api * scale, engine * scale, _floor(size) * scale


def _cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


async def _worker_round(worker: WorkerProcess) -> tuple[int, int]:
    """All streams once: writes seen, bytes read."""
    port = int(worker.url.rpartition(":")[2])
    results = await asyncio.gather(*(_stream(port, worker.gateway_headers, number) for number in range(STREAMS)))
    return sum(reads for reads, _ in results), sum(size for _, size in results)


async def _stream(port: int, gateway_headers: Mapping[str, str], number: int) -> tuple[int, int]:
    asked: dict[str, Any] = {"model": "chat", "stream": True, "max_tokens": TOKENS, "ignore_eos": True}
    body = json.dumps(asked | {"messages": [{"role": "user", "content": f"hello {number}"}]}).encode()
    head = "".join(f"{name}: {value}\r\n" for name, value in gateway_headers.items())
    start = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n{head}content-length: {len(body)}\r\n"
    return await _read_all(port, f"{start}connection: close\r\n\r\n".encode() + body)


async def _read_all(port: int, request: bytes) -> tuple[int, int]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    reads = size = 0
    while data := await reader.read(1 << 16):
        reads, size = reads + 1, size + len(data)
    writer.close()
    return reads, size


def _floor(size: int) -> float:
    """Processor seconds of a process that only sends."""
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    server = multiprocessing.get_context("spawn").Process(target=_send_alone, args=(theirs, size))
    server.start()
    port = ours.recv()
    process = psutil.Process(server.pid)
    before = _cpu(process)
    asyncio.run(_read_floor(port))
    spent = _cpu(process) - before
    ours.send(None)
    server.join()
    return spent


async def _read_floor(port: int) -> None:
    await asyncio.gather(*(_read_all(port, b"go") for _ in range(STREAMS)))


def _send_alone(pipe: Connection, size: int) -> None:
    uvloop.run(_serve_bare(pipe, size))


async def _serve_bare(pipe: Connection, size: int) -> None:
    """When all have asked, `size` bytes to each of them at the pace of an engine's steps; then wait for the end."""
    writers: list[asyncio.StreamWriter] = []
    full = asyncio.Event()

    def enter(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        if len(writers) == STREAMS:
            full.set()

    server = await asyncio.start_server(enter, "127.0.0.1", 0)
    pipe.send(server.sockets[0].getsockname()[1])
    await full.wait()
    line = b"x" * size
    for _ in range(TOKENS):
        await asyncio.sleep(PACE_S)
        for writer in writers:
            writer.write(line)
    for writer in writers:
        writer.close()
    await asyncio.to_thread(pipe.recv)


def _scrape() -> Row:
    """Milliseconds for which a scrape of a worker's own series holds the loop."""
    metrics = Metrics("worker")
    for row in METRICS.values():
        if row.owner == "worker" and row.kind is Kind.HISTOGRAM:
            metrics.histogram(row.name, *row.labels).observe(0.1)
    ours = [_milliseconds(lambda: exposition.page(metrics.families())) for _ in range(SCRAPES)]
    theirs = [_milliseconds(lambda: generate_latest(metrics.registry)) for _ in range(SCRAPES)]
    return Row("a scrape of every histogram once", median(ours), "ms", peer=median(theirs), bar=Bar(5))


def _milliseconds(call: Any) -> float:
    begin = time.perf_counter()
    call()
    return (time.perf_counter() - begin) * 1e3


if __name__ == "__main__":
    main("streaming", measure)

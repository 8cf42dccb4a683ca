"""A whole run against a server of ours on loopback, and what the table says of it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from math import inf
from typing import Any

import pytest
from rich.console import Console

from paceline_cli.bench.client import BenchTarget, Client
from paceline_cli.bench.command import Observer, execute
from paceline_cli.bench.observation import BenchObservation, DecisionRow, Decisions, Emulation, HostUse, Replicas
from paceline_cli.bench.profiles import burst, steady
from paceline_cli.bench.report import Run, parse_target
from paceline_cli.bench.table import render
from paceline_core.clock import SystemClock
from paceline_core.errors import Unreachable

SEEN = BenchObservation(
    replicas=(Replicas(0.0, 1, 1, 0, 0), Replicas(1.0, 2, 1, 1, 0), Replicas(2.0, 2, 2, 0, 0)),
    decisions=Decisions(
        (
            DecisionRow(1.0, "2026-01-01T00:00:01Z", "up", "demand", "none", 2, "1→2: more work"),
            DecisionRow(9.0, "2026-01-01T00:00:09Z", "hold", "steady", "none", 2, "holds 2"),
        ),
        different=0,
    ),
    emulation=Emulation(1000, 0.02),
    host=HostUse(2, 0.5, 0.9),
)


def chat(prompt_tokens: int, texts: int) -> bytes:
    base = {"id": "c", "object": "chat.completion.chunk", "model": "m"}
    deltas = [{"role": "assistant"}, *({"content": "word "} for _ in range(texts))]
    chunks: list[dict[str, Any]] = [
        {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas
    ]
    chunks.append({**base, "choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]})
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": texts, "total_tokens": prompt_tokens + texts}
    chunks.append({**base, "choices": [], "usage": usage})
    return b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"


@asynccontextmanager
async def server(status: bytes = b"200 OK") -> AsyncIterator[str]:
    """Counts a token a word and five for its template, and answers at once."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"content-length"))
        body = json.loads(await reader.readexactly(length))
        answer = chat(len(body["messages"][0]["content"].split()) + 5, body["max_completion_tokens"])
        writer.write(b"HTTP/1.1 " + status + b"\r\ncontent-type: text/event-stream\r\n\r\n" + answer)
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    finally:
        listening.close()
        await listening.wait_closed()


class Watched:
    """A watcher that saw a fixed story."""

    def __init__(self) -> None:
        self.began = False
        self.closed = False

    async def begin(self, start: float) -> None:
        self.began = True

    async def end(self) -> BenchObservation:
        assert self.began
        return replace(SEEN, decisions=None)

    async def close(self) -> None:
        self.closed = True


def decided(since: float) -> Decisions | None:
    assert since > 0
    return SEEN.decisions


def a_run(url: str) -> Run:
    profile = burst(20, 60, (0.2, 0.2, 0.2), 50, 4)
    return Run("2026-01-01T00:00:00Z", url, "m", profile, 1, (parse_target("ttft_p95=5s"),))


async def test_a_run_offers_its_schedule_and_reports_what_the_server_counted() -> None:
    clock = SystemClock()
    async with server() as url:
        run = a_run(url)
        report = await execute(run, Client(BenchTarget(url, "k", "m"), clock, 5), clock, Observer(Watched(), decided))
    offered = report.overall.offered
    assert offered > 5
    assert report.overall.endings == {"ok": offered}
    assert report.overall.output_tokens == 4 * offered
    assert report.overall.prompt_tokens == 50 * offered
    assert report.observation == SEEN
    assert report.cut_streams == 0


async def test_an_unanswered_first_request_ends_the_run() -> None:
    async with server(b"401 Unauthorized") as url:
        with pytest.raises(Unreachable, match="refused: 401"):
            await execute(a_run(url), Client(BenchTarget(url, "k", "m"), SystemClock(), 5), SystemClock())


async def test_the_watch_ends_with_a_run_that_fails() -> None:
    watched = Watched()
    async with server(b"401 Unauthorized") as url:
        client = Client(BenchTarget(url, "k", "m"), SystemClock(), 5)
        with pytest.raises(Unreachable):
            await execute(a_run(url), client, SystemClock(), Observer(watched, decided))
    assert watched.closed


async def test_the_table_shows_phases_replicas_decisions_and_the_verdict() -> None:
    clock = SystemClock()
    async with server() as url:
        client = Client(BenchTarget(url, "k", "m"), clock, 5)
        report = await execute(a_run(url), client, clock, Observer(Watched(), decided))
    console = Console(width=200)
    with console.capture() as capture:
        console.print(render(report))
    shown = capture.get()
    for word in (
        "before",
        "burst",
        "after",
        "100.0% ≥ 95%",
        "replicas: 0s:1 2s:2",
        "1s demand: 1→2: more work",
    ):
        assert word in shown
    assert "holds 2" not in shown
    assert "lateness p99 ≤ 2% of a step" in shown
    late = replace(report, observation=replace(report.observation, emulation=Emulation(300, inf)))
    with console.capture() as capture:
        console.print(render(late))
    assert "lateness p99 over all buckets" in capture.get()
    assert "0 streams cut" in shown


async def test_a_run_without_a_stack_reports_what_a_client_can_see() -> None:
    clock = SystemClock()
    async with server() as url:
        run = Run("2026-01-01T00:00:00Z", url, "m", steady(20, 0.3, 20, 2), 1, ())
        report = await execute(run, Client(BenchTarget(url, "k", "m"), clock, 5), clock)
    assert report.observation == BenchObservation()
    assert report.overall.offered == 6

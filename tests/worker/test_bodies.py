"""What a body may cost a worker: memory while it is read, turns of its loop, and nothing where a route takes none."""

import asyncio
import json
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from tests.worker.harness import LIMIT_S, Rig, eventually, listening, running
from tests.worker.scripted_engine import Script

from paceline_core.admin.http_protocol import SLICE, BoundedHttpProtocol
from paceline_core.errors import Code, RequestError
from paceline_workers.server.http.exchange import BodyMemory, Event, Holding, read_body

HELLO: dict[str, Any] = {"model": "chat", "messages": [{"role": "user", "content": "hello"}], "stream": True}


async def test_a_body_in_parts_of_two_bytes_is_held_once() -> None:
    """A list of the parts would take 30 times their bytes."""
    left = 100_000

    async def receive() -> Event:
        nonlocal left
        left -= 2
        return {"type": "http.request", "body": b"%d" % (10 + left % 90), "more_body": left > 0}

    tracemalloc.start()
    try:
        body = await read_body([], receive, Holding(BodyMemory(), 1 << 20))
        assert len(body) == 100_000
        assert tracemalloc.get_traced_memory()[1] < 4 * len(body)
    finally:
        tracemalloc.stop()


async def test_bodies_together_have_a_limit_and_what_is_over_it_is_refused() -> None:
    memory = BodyMemory(1000)
    first, second = Holding(memory, 800), Holding(memory, 800)

    async def receive() -> Event:
        return {"type": "http.request", "body": b"x" * 600, "more_body": False}

    assert len(await read_body([], receive, first)) == 600
    with pytest.raises(RequestError, match="1000 bytes of requests") as caught:
        await read_body([], receive, second)
    assert caught.value.code is Code.QUEUE_FULL
    first.release()
    assert len(await read_body([], receive, second)) == 600
    second.release()
    second.release()
    assert memory.held == 0


@pytest.fixture
async def rig(folder: Path) -> AsyncIterator[Rig]:
    async with running(Script(reply=[5, 6], fault="hold", phase="decode"), folder=folder) as rig:
        yield rig


async def test_a_stream_that_runs_holds_its_body_no_more(rig: Rig) -> None:
    async with listening(rig) as address, asyncio.timeout(LIMIT_S):
        host, _, port = address.partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        body = json.dumps(HELLO).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n".encode()
        writer.write(head + body[:10])
        await eventually(lambda: rig.worker.parts.bodies.held == 10)
        writer.write(body[10:])
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        assert rig.worker.parts.bodies.held == 0
        writer.close()


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/v1/models", "/v1/models/chat", "/internal/load"])
@pytest.mark.parametrize("body", ["content-length: 8000000", "transfer-encoding: chunked"])
async def test_a_route_that_is_only_read_refuses_a_body_at_its_head(rig: Rig, path: str, body: str) -> None:
    async with listening(rig) as address, asyncio.timeout(LIMIT_S):
        host, _, port = address.partition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(f"GET {path} HTTP/1.1\r\nhost: x\r\n{body}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        writer.close()
    assert head.startswith(b"HTTP/1.1 400")
    assert b"connection: close" in head


class Wire(asyncio.Transport):
    """What a protocol writes to, and whether it reads."""

    def __init__(self) -> None:
        super().__init__()
        self.protocol: Any = None
        self.reads = True
        self.written = b""

    def get_protocol(self) -> Any:
        return self.protocol

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def write(self, data: Any) -> None:
        self.written += bytes(data)

    def close(self) -> None:
        self.reads = False


def connected(app: Any) -> tuple[BoundedHttpProtocol, Wire]:
    config = uvicorn.Config(app, http=BoundedHttpProtocol, lifespan="off", log_config=None)
    config.load()
    protocol, wire = BoundedHttpProtocol(config, uvicorn.Server(config).server_state, {}), Wire()
    wire.protocol = protocol
    protocol.connection_made(wire)
    return protocol, wire


async def test_a_read_full_of_small_chunks_is_parsed_in_turns() -> None:
    """All bytes reach the application, a slice a turn, and nothing is read meanwhile."""
    got, turns = bytearray(), 0

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal turns
        more = True
        while more:
            event = await receive()
            got.extend(event["body"])
            more, turns = event["more_body"], turns + 1
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    protocol, wire = connected(app)
    head = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
    protocol.data_received(head + b"2\r\nab\r\n" * 30_000 + b"0\r\n\r\n")
    assert len(protocol.cycle.body) <= SLICE
    assert not wire.reads
    await eventually(lambda: wire.written)
    assert got == b"ab" * 30_000
    assert turns >= 7 * 30_000 // SLICE
    assert wire.reads


async def test_requests_in_one_read_wait_for_those_before_them() -> None:
    answered = 0
    go_on = asyncio.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        nonlocal answered
        await go_on.wait()
        answered += 1
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    protocol, wire = connected(app)
    request = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
    protocol.data_received(request * 3000)
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(protocol.pipeline) <= SLICE // len(request)
    assert not wire.reads
    go_on.set()
    await eventually(lambda: answered == 3000)
    await eventually(lambda: wire.reads)

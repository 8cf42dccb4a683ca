"""What a connection may cost: bytes held for slow readers and slow workers, time for slow writers, nothing after it."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.gateway.conftest import MakeWorker
from tests.gateway.stand import CHAT, STREAM, Stand, gateway, until
from tests.gateway.test_gateway_http_edges import raw, request
from tests.gateway.test_gateway_websocket import dial
from tests.gateway.worker_double import Script, WorkerDouble

from paceline_gateway.http.connection import WRITE_BUFFER, Connection

pytestmark = pytest.mark.real

LIES = {
    "shorter than said": b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{}",
    "longer than said": b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}more",
    "chunk overrun": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{}\r\n0\r\n\r\n",
    "both lengths": b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n{}",
    "endless head": b"HTTP/1.1 200 OK\r\nx: " + b"y" * 100_000,
    "switches protocol": b"HTTP/1.1 101 Other\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n{}",
    "no HTTP": b"SSH-2.0-x\r\n",
}


class Deaf(WorkerDouble):
    """Its load stream is in order, but it never reads a request's body."""

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"GET /internal/load"):
            await self._load(writer)
        writer.transport.pause_reading()  # type: ignore[attr-defined]


async def _all_given_back(stand: Stand) -> None:
    """No connection, call, byte or reservation is left; idle connections to workers are for others to use."""
    server, requests = stand.process.server, stand.process.requests
    await until(lambda: not server.connections and not server.memory.used and not requests.open)
    assert not any(requests.quotas.totals.open)


async def test_both_legs_of_a_request_send_without_delay(stand: Stand, make_worker: MakeWorker) -> None:
    stand.work(await make_worker())
    async with raw(stand) as client:
        await client.send(request(stand, CHAT))
        assert (await client.answer())[0] == 200
        upstreams = [u for kept in stand.process.requests.pool._idle.values() for u in kept]
        legs: list[Any] = [*stand.process.server.connections, *upstreams]
        assert len(legs) >= 2
        for leg in legs:
            sock = leg._transport.get_extra_info("socket")
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


@pytest.mark.parametrize("size", [100_000, 10 << 20])
async def test_huge_heads_are_refused_while_they_come(stand: Stand, size: int) -> None:
    async with raw(stand) as client:
        client.writer.write(b"GET /health HTTP/1.1\r\nhost: a\r\nx: " + b"y" * size)
        assert await client.code() == (431, "headers_too_large")
    await _all_given_back(stand)


async def test_many_small_headers_are_refused_by_their_number(stand: Stand) -> None:
    async with raw(stand) as client:
        headers = b"".join(b"a%d:\r\n" % i for i in range(2000))
        await client.send(b"GET /health HTTP/1.1\r\nhost: a\r\n" + headers + b"\r\n")
        assert await client.code() == (431, "headers_too_large")


@pytest.mark.parametrize("part", ["head", "body"])
async def test_a_client_that_drips_is_given_up_however_steadily_it_does(tmp_path: Path, part: str) -> None:
    async with gateway(tmp_path, {"header_timeout_s": 0.3, "body_timeout_s": 0.3}) as stand, raw(stand) as client:
        whole = request(stand, CHAT | {"user": "x" * 4000})
        begun = 0 if part == "head" else whole.index(b"\r\n\r\n") + 4

        async def drip() -> None:
            await client.send(whole[:begun])
            for byte in whole[begun:]:
                await client.send(bytes([byte]))
                await asyncio.sleep(0.02)

        dripping = asyncio.create_task(drip())
        assert await client.code() == (408, "request_timeout")
        dripping.cancel()
        await asyncio.gather(dripping, return_exceptions=True)


async def test_what_waits_for_a_client_that_does_not_read_is_bounded(stand: Stand, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    worker.script = lambda _: Script(tokens=("x" * 100_000,) * 400)
    stand.work(worker)
    async with raw(stand, buffer=4096) as client:
        await client.send(request(stand, STREAM))
        (connection,) = stand.process.server.connections
        assert isinstance(connection, Connection)
        transport = connection._transport
        assert transport is not None
        await until(lambda: transport.get_write_buffer_size() > WRITE_BUFFER)
        for _ in range(60):
            assert transport.get_write_buffer_size() <= 4 * WRITE_BUFFER
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def _asking_over_http(stand: Stand) -> AsyncIterator[None]:
    async with raw(stand, buffer=4096) as client:
        await client.send(request(stand, STREAM))
        yield


@contextlib.asynccontextmanager
async def _asking_over_websocket(stand: Stand) -> AsyncIterator[None]:
    async with dial(stand, small=True) as chat:
        await chat.send(json.dumps(STREAM))
        yield


@pytest.mark.parametrize("asking", [_asking_over_http, _asking_over_websocket])
async def test_a_client_that_reads_nothing_slows_the_worker_down_and_is_cut(
    asking: Callable[[Stand], AbstractAsyncContextManager[None]], tmp_path: Path, make_worker: MakeWorker
) -> None:
    worker = await make_worker()
    worker.script = lambda _: Script(tokens=("x" * 100_000,) * 400)
    async with gateway(tmp_path, {"write_timeout_s": 0.3}) as stand:
        stand.work(worker)
        async with asking(stand):
            await until(lambda: bool(worker.seen) and worker.seen[0].closed.is_set())
            await _all_given_back(stand)
            assert await stand.metric("paceline_requests_total", outcome="cancelled") == 1


async def test_a_worker_that_does_not_read_an_upload_costs_one_body_and_a_limit(tmp_path: Path) -> None:
    worker = Deaf()
    await worker.start()
    async with gateway(tmp_path, {"answer_s": 0.5}) as stand:
        stand.work(worker)
        body = json.dumps(CHAT | {"user": "x" * 7_000_000}).encode()
        async with raw(stand) as client:
            sending = asyncio.create_task(client.send(request(stand, body)))
            await until(lambda: stand.process.requests.open == 1)
            assert stand.process.server.memory.used == len(body)
            assert await stand.metric("paceline_gateway_request_body_bytes") == len(body)
            assert await client.code() == (504, "upstream_timeout")
            await sending
        await _all_given_back(stand)
    await worker.stop()


@pytest.mark.parametrize("name", LIES)
async def test_a_worker_that_lies_gets_its_client_a_defined_answer(
    name: str, stand: Stand, make_worker: MakeWorker
) -> None:
    worker = await make_worker()
    worker.script = lambda _: Script(raw=LIES[name])
    stand.work(worker)
    async with raw(stand) as client:
        await client.send(request(stand, CHAT))
        status, _, body = await client.answer()
        assert (status, body) == (200, b"{}") if name == "longer than said" else status == 502
    await _all_given_back(stand)
    assert not any(stand.process.requests.pool._idle.values()), "a connection of which nobody knows what comes next"


async def test_clients_that_leave_at_any_byte_leave_nothing_behind(stand: Stand, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    worker.script = lambda _: Script(tokens=("a",) * 20, delay_s=0.005)
    stand.work(worker)
    await stand.ready()
    before, random = _descriptors(), Random(7)

    async def visit() -> None:
        whole: Any = request(stand, CHAT | {"stream": random.random() < 0.7})
        async with raw(stand) as client:
            await client.send(whole[: random.randint(1, len(whole) * 2)])
            await asyncio.sleep(random.random() / 20)

    for _ in range(10):
        await asyncio.gather(*(visit() for _ in range(20)))
    await _all_given_back(stand)
    kept = sum(map(len, stand.process.requests.pool._idle.values()))
    await until(lambda: _descriptors() <= before + 2 * kept)


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))

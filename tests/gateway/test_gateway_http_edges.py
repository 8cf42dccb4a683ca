"""The public port at byte level: raw sockets, slow and hostile clients, and connections that must end cleanly."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.gateway.conftest import MakeWorker
from tests.gateway.stand import CHAT, PATIENCE_S, Stand, gateway, until
from tests.gateway.worker_double import Script

from paceline_core.process import BACKLOG

pytestmark = pytest.mark.real


class Raw:
    """A connection that a test writes bytes to."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        """Write, and let it go out."""
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """One answer with a length, or chunked."""
        async with asyncio.timeout(PATIENCE_S):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
            first, *lines = head.split("\r\n")
            fields = (line.partition(": ") for line in lines if line)
            headers = {name: value for name, _, value in fields}
            if "content-length" in headers:
                return int(first.split(" ")[1]), headers, await self.reader.readexactly(int(headers["content-length"]))
            body = b""
            while size := int((await self.reader.readline()).strip(), 16):
                body += (await self.reader.readexactly(size + 2))[:-2]
            await self.reader.readexactly(2)
            return int(first.split(" ")[1]), headers, body

    async def code(self) -> tuple[int, str]:
        """Status and error code of one answer."""
        status, _, body = await self.answer()
        return status, json.loads(body)["error"]["code"]

    async def closed(self) -> bool:
        """Whether the gateway closes, with nothing more said."""
        async with asyncio.timeout(PATIENCE_S):
            with contextlib.suppress(ConnectionError):
                return await self.reader.read() == b""
            return True


@contextlib.asynccontextmanager
async def raw(stand: Stand, buffer: int | None = None) -> AsyncIterator[Raw]:
    sock = socket.socket()
    if buffer is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", stand.port))
    reader, writer = await asyncio.open_connection(sock=sock, limit=1 << 16)
    try:
        yield Raw(reader, writer)
    finally:
        writer.transport.abort()


def request(stand: Stand, body: dict[str, Any] | bytes, extra: str = "") -> bytes:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {stand.key}\r\n{extra}"
    return head.encode() + b"content-length: %d\r\n\r\n" % len(data) + data


async def test_bytes_one_at_a_time_make_a_request(stand: Stand, make_worker: MakeWorker) -> None:
    stand.work(await make_worker())
    async with raw(stand) as client:
        for byte in request(stand, CHAT):
            await client.send(bytes([byte]))
        assert (await client.answer())[0] == 200


async def test_pipelined_requests_are_answered_in_order(stand: Stand, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    worker.script = lambda seen: Script(tokens=(json.loads(seen.body)["messages"][0]["content"],))
    stand.work(worker)
    bodies = [
        CHAT | {"stream": index % 2 == 0, "messages": [{"role": "user", "content": f"n{index}"}]} for index in range(6)
    ]
    async with raw(stand) as client:
        await client.send(b"".join(request(stand, body) for body in bodies) + request(stand, b"{"))
        for index in range(6):
            status, _, body = await client.answer()
            assert status == 200
            assert f"n{index}".encode() in body
        assert await client.code() == (400, "invalid_json")


async def test_a_client_that_expects_100_gets_100_continue(stand: Stand, make_worker: MakeWorker) -> None:
    stand.work(await make_worker())
    whole = request(stand, CHAT, "expect: 100-continue\r\n")
    head, body = whole.split(b"\r\n\r\n")
    async with raw(stand) as client:
        await client.send(head + b"\r\n\r\n")
        assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        await client.send(body)
        assert (await client.answer())[0] == 200


async def test_a_client_that_asks_first_with_a_wrong_key_never_sends_its_body(stand: Stand) -> None:
    head = b"POST /v1/completions HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n"
    async with raw(stand) as client:
        await client.send(head)
        assert await client.code() == (401, "invalid_api_key")
        assert await client.closed()


def enormous(stand: Stand) -> bytes:
    """The head of a request whose body is too large."""
    return request(stand, b"").replace(b"content-length: 0", b"content-length: 99999999")


async def test_a_body_over_the_cap_is_refused_before_it_is_sent(stand: Stand) -> None:
    async with raw(stand) as client:
        await client.send(enormous(stand))
        assert await client.code() == (413, "request_too_large")
        assert await client.closed()


async def test_the_refusal_reaches_a_client_that_goes_on_sending(stand: Stand) -> None:
    async with raw(stand) as client:
        client.writer.write(enormous(stand) + b"x" * (4 << 20))
        assert await client.code() == (413, "request_too_large")


async def test_chunked_bodies_are_read(stand: Stand, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    stand.work(worker)
    body = json.dumps(CHAT).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {stand.key}\r\n"
    chunks = b"".join(b"1;x=y\r\n%c\r\n" % byte for byte in body)
    async with raw(stand) as client:
        await client.send(head.encode() + b"transfer-encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n")
        assert (await client.answer())[0] == 200
    assert worker.seen[0].body == body


async def test_smuggled_requests_end_the_connection(stand: Stand) -> None:
    async with raw(stand) as client:
        whole = request(stand, CHAT, "transfer-encoding: chunked\r\n")
        await client.send(whole + request(stand, CHAT))
        assert await client.code() == (400, "invalid_request")
        assert await client.closed()


async def test_an_old_client_gets_a_stream_that_ends_with_the_connection(stand: Stand, make_worker: MakeWorker) -> None:
    stand.work(await make_worker())
    whole = request(stand, CHAT | {"stream": True}).replace(b"HTTP/1.1", b"HTTP/1.0")
    async with raw(stand) as client:
        await client.send(whole)
        async with asyncio.timeout(PATIENCE_S):
            text = await client.reader.read()
    assert b"transfer-encoding" not in text
    assert text.endswith(b"data: [DONE]\n\n")


async def test_a_connection_is_persistent_or_closed_as_requested(stand: Stand, make_worker: MakeWorker) -> None:
    stand.work(await make_worker())
    async with raw(stand) as client:
        for body in (CHAT, CHAT | {"stream": True}):
            await client.send(request(stand, body))
            assert (await client.answer())[0] == 200
        await client.send(request(stand, CHAT, "connection: close\r\n"))
        assert (await client.answer())[1]["connection"] == "close"
        assert await client.closed()


async def test_a_client_that_closes_its_side_is_gone(stand: Stand, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    worker.script = lambda _: Script(stall_after=1)
    stand.work(worker)
    async with raw(stand) as client:
        await client.send(request(stand, CHAT | {"stream": True}))
        await client.reader.readuntil(b"\n\n")
        client.writer.write_eof()
        await until(worker.seen[0].closed.is_set)


async def test_a_slow_head_and_a_slow_body_are_given_up(tmp_path: Any) -> None:
    async with gateway(tmp_path, {"header_timeout_s": 0.1, "body_timeout_s": 0.1}) as stand:
        for part in (b"POST /v1/comp", request(stand, CHAT)[:-1]):
            async with raw(stand) as client:
                await client.send(part)
                assert await client.code() == (408, "request_timeout")
                assert await client.closed()


async def test_an_idle_connection_is_closed(tmp_path: Any) -> None:
    async with gateway(tmp_path, {"keepalive_timeout_s": 0.1}) as stand, raw(stand) as client:
        assert await client.closed()


async def test_a_client_that_reads_slowly_gets_everything(stand: Stand, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    worker.script = lambda _: Script(tokens=("x" * 100_000,) * 60)
    stand.work(worker)
    async with raw(stand, buffer=4096) as client:
        await client.send(request(stand, CHAT | {"stream": True}))
        status, _, body = await client.answer()
    assert status == 200
    assert body.count(b"x") >= 6_000_000
    assert body.endswith(b"data: [DONE]\n\n")


async def test_connections_have_a_cap(tmp_path: Any) -> None:
    async with gateway(tmp_path, {"connections": 1}) as stand:
        async with raw(stand) as first, raw(stand) as second:
            await second.send(b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n")
            assert (await second.answer())[0] == 200
            assert await first.closed(), "it asked for nothing, so it made room"
        async with raw(stand) as asking:
            await asking.send(request(stand, CHAT))
            await until(lambda: stand.process.requests.open == 1)
            async with raw(stand) as third:
                assert await third.code() == (503, "no_capacity")
                assert await third.closed()


async def test_nothing_is_left_behind(stand: Stand, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    stand.work(worker)
    for data in (request(stand, CHAT), b"junk\r\n\r\n", request(stand, b"{")):
        async with raw(stand) as client:
            await client.send(data)
            await client.answer()
    async with raw(stand) as client:
        await client.send(request(stand, CHAT)[:-3])
        await until(lambda: stand.process.server.memory.used > 0)
    requests, server = stand.process.requests, stand.process.server
    await until(lambda: requests.open == 0 and server.busy == 0 and server.memory.used == 0)


@pytest.mark.parametrize("path", ["/health", "/v1/models"])
@pytest.mark.parametrize(
    "framing",
    [
        "content-length: 8000000\r\n",
        "content-length: 90000000\r\n",
        "transfer-encoding: chunked\r\n",
        "content-length: 1\r\nexpect: 100-continue\r\n",
    ],
)
async def test_a_route_that_takes_no_body_refuses_one_by_its_head(stand: Stand, path: str, framing: str) -> None:
    head = f"GET {path} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {stand.key}\r\n{framing}\r\n"
    async with raw(stand) as client:
        await client.send(head.encode())
        status, headers, body = await client.answer()
        assert (status, headers["connection"]) == (400, "close")
        assert f"GET {path} takes no body" in json.loads(body)["error"]["message"]
        await client.send(b"x" * 1000)
        assert stand.process.server.memory.used == 0


async def test_a_body_that_came_whole_is_refused_and_its_connection_goes_on(stand: Stand) -> None:
    async with raw(stand) as client:
        await client.send(b"GET /health HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n{}")
        status, headers, _ = await client.answer()
        assert (status, headers.get("connection")) == (400, None)
        await client.send(b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n")
        assert (await client.answer())[0] == 200


async def test_an_empty_body_is_none(stand: Stand) -> None:
    async with raw(stand) as client:
        await client.send(b"GET /health HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n")
        assert (await client.answer())[0] == 200


async def test_a_body_of_somebody_unknown_is_never_held(stand: Stand) -> None:
    async with raw(stand) as client:
        await client.send(
            b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 8000000\r\n\r\n" + b"x" * 100_000
        )
        assert await client.code() == (401, "invalid_api_key")
        assert stand.process.server.memory.used == 0


async def test_a_burst_of_clients_waits_at_the_port_and_is_not_sent_away(stand: Stand) -> None:
    sock = stand.process._ports.public
    waiting = int.from_bytes(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 32)[28:32], "little")
    assert waiting >= BACKLOG, "of a listening socket, tcp_info.tcpi_sacked is its backlog"

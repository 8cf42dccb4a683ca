"""What a client without any right can make an admin port hold, and how much of a turn of its loop it gets."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest
import uvicorn
from tests.every import cases
from uvicorn.server import ServerState

from paceline_core.admin.http_protocol import HEAD_BYTES, SLICE, BoundedHttpProtocol
from paceline_core.admin.middleware import LIMIT, BodyLimitMiddleware
from paceline_core.config import Listen
from paceline_core.process import admin_server, bind

ENOUGH = 16 << 20
Event = dict[str, Any]


class Application:
    """Collects a whole body, as frameworks do, and answers its length."""

    def __init__(self) -> None:
        self.held = 0
        self.events = 0

    async def __call__(self, _scope: Any, receive: Any, send: Any) -> None:
        more = True
        while more:
            event = await receive()
            self.events += 1
            self.held += len(event.get("body", b""))
            more = event["type"] == "http.request" and event.get("more_body", False)
        told = str(self.held).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(told))]})
        await send({"type": "http.response.body", "body": told})


@contextlib.asynccontextmanager
async def serving(app: Any) -> AsyncIterator[tuple[str, int]]:
    sock = bind(Listen(host="127.0.0.1", port=0))
    server = admin_server(app)
    task = asyncio.create_task(server.serve([sock]))
    try:
        yield sock.getsockname()[:2]
    finally:
        server.should_exit = True
        await task


async def status(place: tuple[str, int], head: bytes, repeated: bytes) -> int:
    """Of what is sent without end; 0 where ENOUGH was taken and nothing said."""
    reader, writer = await asyncio.open_connection(*place)
    answered = asyncio.create_task(reader.readline())
    writer.write(head)
    with contextlib.suppress(ConnectionError):
        for _ in range(ENOUGH // len(repeated)):
            if answered.done():
                break
            writer.write(repeated)
            await writer.drain()
    line = await answered if answered.done() else b"HTTP/1.1 0"
    answered.cancel()
    writer.close()
    return int(line.split(b" ")[1])


@pytest.mark.real
@pytest.mark.parametrize(
    ("head", "repeated", "refused"),
    [
        (b"GET / HTTP/1.1\r\nhost: x\r\n", b"a: b\r\n" * 1000, 431),
        (b"GET / HTTP/1.1\r\nhost: x\r\na: ", b"a" * 6000, 431),
        (b"PUT / HTTP/1.1\r\nhost: x\r\ncontent-length: 9999999999\r\n\r\n", b"a" * 6000, 413),
        (b"PUT / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n", b"1770\r\n" + b"a" * 6000 + b"\r\n", 413),
    ],
)
async def test_a_head_or_body_without_end_is_refused_and_never_held(head: bytes, repeated: bytes, refused: int) -> None:
    app = Application()
    async with serving(app) as place:
        assert await status(place, head, repeated) == refused
    assert app.held <= LIMIT
    assert HEAD_BYTES < LIMIT


@pytest.mark.real
@pytest.mark.parametrize("trailers", [(b"a: ", b"a" * 6000), (b"", b"a: b\r\n" * 1000)], ids=["one", "many"])
@pytest.mark.parametrize("answered", [False, True])
async def test_trailers_without_end_are_refused_and_never_held(trailers: tuple[bytes, bytes], answered: bool) -> None:
    async def refuse(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    first, repeated = trailers
    async with serving(refuse if answered else Application()) as place:
        reader, writer = await asyncio.open_connection(*place)
        writer.write(b"PUT / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1\r\nb\r\n0\r\n" + first)
        if answered:
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 401 ")
        told, sent = asyncio.create_task(reader.readline()), 0
        with contextlib.suppress(ConnectionError):
            while sent < 4 << 20 and not told.done():
                writer.write(repeated)
                sent += len(repeated)
                await writer.drain()
        ended, said = told.done(), b"" if answered else b"HTTP/1.1 431"
        told.cancel()
        writer.close()
        assert ended
        with contextlib.suppress(ConnectionError):
            assert told.result()[:12] == said


@pytest.mark.real
async def test_who_sends_everything_before_reading_is_read_until_the_end_and_gets_the_refusal() -> None:
    def send_all(place: tuple[str, int]) -> bytes:
        with socket.create_connection(place) as sock:
            sock.sendall(b"GET / HTTP/1.1\r\nhost: x\r\na: " + b"a" * ENOUGH)
            return sock.recv(12)

    async with serving(Application()) as place:
        assert await asyncio.to_thread(send_all, place) == b"HTTP/1.1 431"


class Timers(asyncio.SelectorEventLoop):
    """A loop that never runs: the calls that were asked for later."""

    def __init__(self) -> None:
        super().__init__()
        self.later: list[asyncio.TimerHandle] = []

    def call_later(self, delay: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:  # type: ignore[override]
        handle = super().call_later(delay, callback, *args, context=context)
        self.later.append(handle)
        return handle


class Line(asyncio.Transport):
    """A transport on which nothing happens; `closed` once its protocol has closed it."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = False
        self.protocol: Any = None

    def get_protocol(self) -> Any:
        return self.protocol

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


@cases(
    ("sent", "limited"),
    [
        ([], True),
        ([b"\r\n"], True),
        ([b"GET / HT"], True),
        ([b"GET / HTTP/1.1\r\nhost: x\r\n"], True),
        ([b"PUT / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n", b"a"], True),
        ([b"PUT / HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n", b"ab"], False),
        ([b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"], False),
        ([b"GET / HTTP/1.1\r\nhost: x\r\n\r\nGET"], True),
    ],
)
def test_a_request_that_is_not_whole_has_one_limit_of_time(sent: list[bytes], limited: bool) -> None:
    loop, transport = Timers(), Line()
    try:
        config = uvicorn.Config(Application(), http=BoundedHttpProtocol, ws="none", lifespan="off", log_config=None)
        transport.protocol = protocol = BoundedHttpProtocol(config, ServerState(), {}, loop)
        protocol.connection_made(transport)
        for data in sent:
            protocol.data_received(data)
        waiting = [handle for handle in loop.later if not handle.cancelled()]
        assert len(waiting) == limited
        for handle in waiting:
            handle._run()
        assert transport.closed == limited
        protocol.connection_lost(None)
        assert all(handle.cancelled() for handle in loop.later if handle not in waiting)
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
    finally:
        loop.close()


@pytest.mark.real
async def test_one_read_of_small_chunks_is_parsed_over_many_turns_of_the_loop() -> None:
    chunks, turns = 3000, 0
    app = Application()
    async with serving(app) as place:
        reader, writer = await asyncio.open_connection(*place)
        body = b"1\r\na\r\n" * chunks
        writer.write(b"PUT / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n" + body)
        answered = asyncio.create_task(reader.readexactly(1))
        while app.held < chunks:  # each turn is counted
            turns += bool(app.events)
            await asyncio.sleep(0)
        writer.write(b"0\r\n\r\n")
        await answered
        writer.close()
    assert turns >= len(body) // SLICE


async def test_a_body_within_the_bound_reaches_the_application_whole() -> None:
    app, sent = Application(), list[Event]()
    events = [{"type": "http.request", "body": b"a" * 4, "more_body": True}, {"type": "http.request", "body": b"b" * 4}]

    async def receive() -> Any:
        return events.pop(0)

    async def send(event: Any) -> None:
        sent.append(event)

    await BodyLimitMiddleware(app, limit=8)({"type": "http", "headers": []}, receive, send)
    assert [event.get("body") for event in sent] == [None, b"8"]

"""The generating routes over WebSocket, by a real client over a real port."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.worker.conftest import TEXT
from tests.worker.harness import LIMIT_S, Rig, events, eventually, listening, running
from tests.worker.scripted_engine import Script
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from paceline_core.registry import Outcome
from paceline_workers.server.handlers.generation import generating
from paceline_workers.server.http.caller import Caller
from paceline_workers.server.http.exchange import RequestExchange
from paceline_workers.server.http.middleware import CallerMiddleware
from paceline_workers.server.http.websocket import SocketRoute
from paceline_workers.server.openai.chat_job import chat_job
from paceline_workers.server.request_handler import ServerDeps

CHAT = "/v1/chat/completions"
TEXTS = "/v1/completions"
HELLO: dict[str, Any] = {"model": "chat", "messages": [{"role": "user", "content": "hello"}]}
STREAM = HELLO | {"stream": True, "stream_options": {"include_usage": True}}


@pytest.fixture
async def rig(folder: Path, reply: list[int]) -> AsyncIterator[Rig]:
    async with running(Script(reply=reply, per_frame=3), folder=folder, body_limit=4096) as rig:
        yield rig


@pytest.fixture
async def address(rig: Rig) -> AsyncIterator[str]:
    async with listening(rig) as address:
        yield address


def dial(address: str, path: str = CHAT, **settings: Any) -> connect:
    return connect(f"ws://{address}{path}", open_timeout=LIMIT_S, close_timeout=LIMIT_S, **settings)


async def received(socket: ClientConnection) -> Any:
    """The next message's JSON, `[DONE]` as text."""
    message = await asyncio.wait_for(socket.recv(), LIMIT_S)
    assert isinstance(message, str)
    return message if message == "[DONE]" else json.loads(message)


async def unread(socket: ClientConnection) -> AsyncIterator[Any]:
    """All messages until the connection ends."""
    with contextlib.suppress(ConnectionClosed):
        while True:
            yield await received(socket)


async def asked(socket: ClientConnection, body: Any) -> list[Any]:
    """All messages of one streamed answer."""
    await socket.send(json.dumps(body))
    told = [await received(socket)]
    while told[-1] != "[DONE]":
        told.append(await received(socket))
    return told


def same(chunks: list[Any]) -> list[Any]:
    """Events without what differs from answer to answer, text put together."""
    texts = [choice["delta"].get("content", "") for chunk in chunks[:-1] for choice in chunk["choices"]]
    ends = [choice["finish_reason"] for chunk in chunks[:-1] for choice in chunk["choices"] if choice["finish_reason"]]
    return [chunks[0]["object"], chunks[0]["choices"], "".join(texts), ends, chunks[-2]["usage"], chunks[-1]]


async def test_messages_are_the_events_of_the_same_stream(rig: Rig, address: str) -> None:
    over_http = events((await rig.http.post(CHAT, json=STREAM)).content)
    async with dial(address) as socket:
        assert same(await asked(socket, STREAM)) == same(over_http)


async def test_requests_of_one_connection_are_answered_in_turn(address: str) -> None:
    async with dial(address) as socket:
        for _ in range(3):
            assert same(await asked(socket, STREAM))[2] == TEXT


async def test_a_request_that_streams_nothing_is_one_message(address: str) -> None:
    async with dial(address, TEXTS) as socket:
        await socket.send(json.dumps({"model": "chat", "prompt": "a", "max_tokens": 100}).encode())
        answer = await received(socket)
        assert (answer["object"], answer["choices"][0]["text"]) == ("text_completion", TEXT)
        assert (await asked(socket, {"model": "chat", "prompt": "a", "stream": True}))[-1] == "[DONE]"


async def test_a_refusal_is_one_message_and_the_connection_goes_on(address: str) -> None:
    async with dial(address) as socket:
        for body, code in (("{", "invalid_json"), ("{}", "invalid_request"), ('{"model": "x"}', "invalid_request")):
            await socket.send(body)
            assert (await received(socket))["error"]["code"] == code
        assert same(await asked(socket, STREAM))[2] == TEXT


async def test_a_message_over_the_limit_closes_the_connection(address: str) -> None:
    async with dial(address) as socket:
        await socket.send("x" * 4097)
        with pytest.raises(ConnectionClosed) as caught:
            await received(socket)
    assert caught.value.rcvd is not None
    assert caught.value.rcvd.code == 1009


async def test_closing_ends_the_request(folder: Path, reply: list[int]) -> None:
    log = folder / "engine.log"
    script = Script(reply=reply, fault="hold", phase="decode", log=str(log))
    async with running(script, folder=folder) as rig, listening(rig) as address:
        async with dial(address) as socket:
            await socket.send(json.dumps(STREAM))
            await received(socket)
        await eventually(lambda: log.read_text().split() == ["Submit", "Abort"])
        await eventually(lambda: rig.worker.gate.open == 0)
        assert f'outcome="{Outcome.CANCELLED}"' in (await rig.http.get("/metrics")).text


async def test_what_may_wait_is_answered_and_then_one_who_sent_more_is_told_so(folder: Path, reply: list[int]) -> None:
    log = folder / "engine.log"
    async with running(Script(reply=reply, log=str(log)), folder=folder) as rig, listening(rig) as address:
        async with dial(address) as socket:
            for _ in range(5):
                await socket.send(json.dumps(STREAM))
            told = [message async for message in unread(socket)]
        assert (socket.close_code, "send the next when" in (socket.close_reason or "")) == (1008, True)
        first = told.index("[DONE]") + 1
        assert same(told[:first])[2] == TEXT
        assert told.count("[DONE]") == len(log.read_text().split()) < 5
        assert told[-1] == "[DONE]"


async def test_a_message_sent_with_the_one_before_it_is_answered_too(address: str) -> None:
    async with dial(address) as socket:
        await socket.send(json.dumps(STREAM))
        await socket.send(json.dumps(STREAM))
        told = [await received(socket)]
        while told.count("[DONE]") < 2:
            told.append(await received(socket))


async def test_a_client_that_reads_nothing_is_given_up(rig: Rig, reply: list[int], folder: Path) -> None:
    log = folder / "engine.log"
    script = Script(reply=reply, fault="hold", phase="decode", log=str(log))
    async with running(script, folder=folder, write_limit_s=0.05) as slow:
        sent: list[Any] = []
        came: asyncio.Queue[Any] = asyncio.Queue()
        came.put_nowait({"type": "websocket.connect"})
        came.put_nowait({"type": "websocket.receive", "text": json.dumps(STREAM)})

        async def send(event: Any) -> None:
            sent.append(event)
            if event["type"] == "websocket.send":
                await asyncio.Event().wait()

        route = SocketRoute(slow.worker.parts, generating(chat_job))
        scope = {"type": "websocket", "caller": Caller("r"), "headers": []}
        await asyncio.wait_for(route(scope, came.get, send), LIMIT_S)
        assert sent[-1] == {"type": "websocket.close", "code": 1008, "reason": "nothing was read for 0 s"}
        await eventually(lambda: log.read_text().split() == ["Submit", "Abort"])
        assert slow.worker.gate.open == 0


async def test_an_idle_connection_is_closed(rig: Rig) -> None:
    sent: list[Any] = []
    came: asyncio.Queue[Any] = asyncio.Queue()
    came.put_nowait({"type": "websocket.connect"})

    async def send(event: Any) -> None:
        sent.append(event)

    route = SocketRoute(rig.worker.parts, generating(chat_job), idle_s=0.01)
    await asyncio.wait_for(route({"type": "websocket", "caller": Caller("r"), "headers": []}, came.get, send), LIMIT_S)
    assert [event["type"] for event in sent] == ["websocket.accept", "websocket.close"]
    assert sent[-1]["code"] == 1000


async def test_the_request_id_comes_back_with_the_handshake(address: str) -> None:
    async with dial(address, additional_headers={"x-request-id": "abc_1"}) as socket:
        assert socket.response is not None
        assert socket.response.headers["x-request-id"] == "abc_1"


@pytest.mark.parametrize(("trusted", "known"), [(True, "batch"), (False, "interactive")])
async def test_a_class_is_believed_from_a_gateway_alone(rig: Rig, trusted: bool, known: str) -> None:
    came: asyncio.Queue[Any] = asyncio.Queue()
    for event in ("connect", "receive"):
        came.put_nowait({"type": f"websocket.{event}", "text": "{}"})
    seen: list[Caller] = []

    async def serve(_: ServerDeps, exchange: RequestExchange) -> None:
        seen.append(exchange.caller)
        came.put_nowait({"type": "websocket.disconnect"})
        await exchange.gone()

    async def send(event: Any) -> None: ...

    headers = {"x-paceline-class": "batch", "x-paceline-resume": "9"} | (dict(rig.gateway_headers) if trusted else {})
    scope = {"type": "websocket", "headers": [(name.encode(), value.encode()) for name, value in headers.items()]}
    await CallerMiddleware(SocketRoute(rig.worker.parts, serve), rig.worker.trust, anonymous=True)(
        scope, came.get, send
    )
    assert [(caller.request_class, caller.resume) for caller in seen] == [(known, 0)]


async def test_a_draining_worker_says_so_and_closes(rig: Rig, address: str) -> None:
    async with dial(address) as socket:
        rig.worker.gate.drain()
        await socket.send(json.dumps(STREAM))
        assert (await received(socket))["error"]["code"] == "draining"
        with pytest.raises(ConnectionClosed) as caught:
            await received(socket)
    assert caught.value.rcvd is not None
    assert caught.value.rcvd.code == 1012


async def test_a_stream_that_is_lost_ends_with_an_error_and_done(folder: Path, reply: list[int]) -> None:
    script = Script(reply=reply, fault="crash", phase="decode", once=str(folder / "struck"))
    async with running(script, folder=folder) as rig, listening(rig) as address, dial(address) as socket:
        *_, error, done = await asked(socket, STREAM)
        assert (error["error"]["code"], done) == ("engine_failed", "[DONE]")


async def test_pages_of_other_sites_are_refused(address: str) -> None:
    async with dial(address, origin=f"http://{address}") as socket:
        assert same(await asked(socket, STREAM))[2] == TEXT
    for origin in ("http://elsewhere.example", f"http://{address}.example", "null"):
        with pytest.raises(InvalidStatus) as caught:
            async with dial(address, origin=origin):
                pass
        assert told(caught.value) == (400, "invalid_request", "origin")


async def test_other_routes_take_no_connection(address: str, caplog: pytest.LogCaptureFixture) -> None:
    for path in ("/v1/embeddings", "/v1/nothing", "/internal/load"):
        with pytest.raises(InvalidStatus) as caught:
            async with dial(address, path):
                pass
        assert told(caught.value) == (404, "route_not_found", None)
        assert caught.value.response.headers["x-request-id"]
    assert not caplog.records


def told(refusal: InvalidStatus) -> tuple[int, str, str | None]:
    """Status, code and param of a handshake's refusal."""
    error = json.loads(refusal.response.body or b"")["error"]
    return refusal.response.status_code, error["code"], error["param"]

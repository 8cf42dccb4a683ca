"""WebSocket at the gateway: each message is a request with all that a request has, and nothing outlives its client."""

import asyncio
import contextlib
import json
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.gateway import manifests
from tests.gateway.conftest import MakeWorker
from tests.gateway.stand import CHAT, PATIENCE_S, STREAM, Stand, gateway, until
from tests.gateway.worker_double import Script, Seen
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.protocol import CLIENT
from websockets.protocol import Protocol as Frames

pytestmark = pytest.mark.real
NAMED: dict[str, Any] = {"x-request-id": "mine", "x-paceline-class": "batch"}
TOKENS = (" a", " stream", " over", " WebSocket")


def dial(
    stand: Stand, path: str = "/v1/chat/completions", key: str | None = None, *, small: bool = False, **headers: Any
) -> connect:
    """Connect as a client of the tenant."""
    fields = {"authorization": f"Bearer {stand.key if key is None else key}"} | headers
    uri = f"ws://127.0.0.1:{stand.port}{path}"
    sock = small_socket(stand) if small else None
    return connect(uri, additional_headers=fields, sock=sock, compression=None, proxy=None, close_timeout=1)


def small_socket(stand: Stand) -> socket.socket:
    """Connected, and with room for few bytes."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(("127.0.0.1", stand.port))
    return sock


async def hear(chat: ClientConnection) -> Any:
    """One message; `[DONE]` as it is."""
    async with asyncio.timeout(PATIENCE_S):
        message = await chat.recv()
    return message if message == "[DONE]" else json.loads(message)


async def stream(chat: ClientConnection, body: Any = STREAM) -> list[Any]:
    """All events of one answer."""
    await chat.send(json.dumps(body))
    events = []
    while (event := await hear(chat)) != "[DONE]":
        events.append(event)
    return events


async def code(chat: ClientConnection) -> int | None:
    """The code with which the gateway closes."""
    async with asyncio.timeout(PATIENCE_S):
        with contextlib.suppress(ConnectionClosed):
            async for _ in chat:
                pass
    return chat.close_code


def text(events: list[Any]) -> str:
    return "".join(event["choices"][0]["delta"].get("content", "") for event in events)


def answering(**settings: Any) -> Callable[[Seen], Script]:
    return lambda _: Script(tokens=TOKENS, **settings)


async def left_nothing(stand: Stand) -> None:
    server, requests = stand.process.server, stand.process.requests
    await until(lambda: not server.connections and not server.memory.used and not requests.open)
    assert not any(requests.quotas.totals.open)


async def test_messages_are_requests_with_a_name_a_class_and_a_count_each(
    stand: Stand, make_worker: MakeWorker
) -> None:
    worker = await make_worker()
    worker.script = answering()
    stand.work(worker)
    async with dial(stand, **NAMED) as chat:
        assert text(await stream(chat)) == "".join(TOKENS)
        await chat.send(json.dumps(CHAT).encode())
        assert (await hear(chat))["choices"][0]["message"]["content"] == "".join(TOKENS)
    names = [(seen.headers["x-request-id"], seen.headers["x-paceline-class"]) for seen in worker.seen]
    assert names == [("mine-1", "batch"), ("mine-2", "batch")]
    assert await stand.metric("paceline_requests_total", outcome="ok") == 2
    await left_nothing(stand)


async def test_open_connections_are_counted_by_kind(stand: Stand, make_worker: MakeWorker) -> None:
    stand.work(await make_worker())
    name = "paceline_gateway_connections"
    before = await stand.metric(name, kind="http")
    async with dial(stand) as chat:
        assert await stream(chat)
        assert await stand.metric(name, kind="websocket") == 1
        assert await stand.metric(name, kind="http") == before
    await until(lambda: is_zero(stand.metric(name, kind="websocket")))


async def is_zero(metric: Awaitable[float]) -> bool:
    return await metric == 0


async def test_a_refusal_is_a_message_and_the_connection_stays(stand: Stand, make_worker: MakeWorker) -> None:
    stand.work(await make_worker())
    async with dial(stand) as chat:
        for body, expected in (("{", "invalid_json"), ('{"model": "none"}', "model_not_found")):
            await chat.send(body)
            error = (await hear(chat))["error"]
            assert (error["code"], error["should_retry"]) == (expected, False)
        assert chat.response is not None
        assert not [name for name in chat.response.headers if name.startswith("x-ratelimit")], "nothing is limited"
        assert await stream(chat)


@pytest.mark.parametrize(
    ("path", "key", "status"),
    [("/v1/chat/completions", "pl_x", 401), ("/v1/embeddings", None, 404), ("/internal/load", None, 404)],
)
async def test_a_handshake_is_judged_like_a_request(stand: Stand, path: str, key: str | None, status: int) -> None:
    with pytest.raises(InvalidStatus) as refused:
        async with dial(stand, path, key):
            pass
    assert refused.value.response.status_code == status


async def test_pages_of_other_sites_may_not_connect(stand: Stand) -> None:
    own = f"127.0.0.1:{stand.port}"
    async with dial(stand, origin=f"http://{own}"):
        pass
    for origin in ("http://elsewhere.example", f"http://{own}.example", "null"):
        with pytest.raises(InvalidStatus) as refused:
            async with dial(stand, origin=origin):
                pass
        response = refused.value.response
        assert (response.status_code, json.loads(response.body or b"")["error"]["param"]) == (400, "origin")


async def test_a_revoked_key_stops_an_open_connection(stand: Stand, make_worker: MakeWorker) -> None:
    stand.work(await make_worker())
    async with dial(stand) as chat:
        assert await stream(chat)
        (secret,) = stand.cluster.board("Secret").items
        stand.cluster.drop("Secret", secret)
        await until(lambda: not stand.process.registry.snapshot.keys)
        await chat.send(json.dumps(CHAT))
        assert (await hear(chat))["error"]["code"] == "invalid_api_key"


async def test_quota_is_asked_for_by_each_message(stand: Stand, make_worker: MakeWorker) -> None:
    stand.work(await make_worker())
    stand.cluster.put(manifests.tenant(limits={"requestsPerMinute": 2}))
    await until(lambda: stand.process.registry.snapshot.tenants["team"].requests_per_minute == 2)
    async with dial(stand) as chat:
        assert await stream(chat)
        assert await stream(chat)
        await chat.send(json.dumps(STREAM))
        refused = (await hear(chat))["error"]
        assert (refused["code"], refused["should_retry"]) == ("rate_limit_exceeded", True)
        assert 0 < refused["retry_after_ms"] <= 30_000
    async with dial(stand) as chat:
        assert chat.response is not None
        told = [chat.response.headers[f"x-ratelimit-{what}-requests"] for what in ("limit", "remaining")]
        assert told == ["2", "0"]


async def test_closing_the_connection_stops_the_worker(stand: Stand, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    worker.script = answering(stall_after=2)
    stand.work(worker)
    async with dial(stand) as chat:
        await chat.send(json.dumps(STREAM))
        await hear(chat)
    await until(worker.seen[0].closed.is_set)
    await left_nothing(stand)
    assert await stand.metric("paceline_requests_total", outcome="cancelled") == 1


async def test_a_stream_that_loses_its_worker_goes_on(stand: Stand, make_worker: MakeWorker) -> None:
    first, second = await make_worker("w0"), await make_worker("w1")
    faults = [Script(tokens=TOKENS, cut_after=2), Script(tokens=TOKENS)]
    first.script = second.script = lambda _: faults.pop(0)
    stand.work(first, second)
    await stand.ready(2)
    async with dial(stand) as chat:
        assert text(await stream(chat)) == "".join(TOKENS)


async def test_a_stream_that_cannot_go_on_ends_with_an_error_and_done(stand: Stand, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    worker.script = answering(error_after=2)
    stand.work(worker)
    async with dial(stand) as chat:
        assert (await stream(chat))[-1]["error"]["code"] == "engine_failed"


async def test_a_ping_beside_a_message_that_waits_is_no_message(stand: Stand, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    worker.script = answering()
    stand.work(worker)
    async with dial(stand) as chat:
        frames = Frames(CLIENT)
        for _ in range(2):
            frames.send_text(json.dumps(CHAT).encode())
        frames.send_ping(b"")
        chat.transport.write(b"".join(frames.data_to_send()))
        for _ in range(2):
            assert (await hear(chat))["choices"][0]["message"]["content"] == "".join(TOKENS)
        assert await stream(chat)


@pytest.mark.parametrize("body", [STREAM, {"model": "none"}], ids=["answered", "refused"])
async def test_one_message_may_wait_and_who_sends_more_is_closed_after_the_answers(
    stand: Stand, make_worker: MakeWorker, body: Any
) -> None:
    worker = await make_worker()
    worker.script = answering()
    stand.work(worker)
    async with dial(stand) as chat:
        frames = Frames(CLIENT)
        for _ in range(5):
            frames.send_text(json.dumps(body).encode())
        chat.transport.write(b"".join(frames.data_to_send()))
        heard = []
        with contextlib.suppress(ConnectionClosed):
            while True:
                heard.append(await hear(chat))
        ends = [message for message in heard if message == "[DONE]" or "error" in message]
        assert (len(ends), chat.close_code) == (2, 1008)
    assert len(worker.seen) in (0, 2)
    await left_nothing(stand)


@pytest.mark.parametrize(
    ("limits", "sent", "expected"),
    [
        ({"body_bytes": 2000}, "x" * 3000, 1009),
        ({"memory_bytes": 2000}, "x" * 3000, 1013),
        ({"keepalive_timeout_s": 0.1}, "", 1000),
    ],
)
async def test_limits_close_with_their_code(tmp_path: Path, limits: Any, sent: str, expected: int) -> None:
    async with gateway(tmp_path, limits) as stand, dial(stand) as chat:
        if sent:
            await chat.send(sent)
        assert await code(chat) == expected
        await left_nothing(stand)


async def test_a_message_that_drips_is_given_up(tmp_path: Path) -> None:
    async with gateway(tmp_path, {"body_timeout_s": 0.2}) as stand, dial(stand) as chat:
        chat.transport.write(b"\x81\xfe\x10\x00aaaa" + b"x" * 100)
        assert await code(chat) == 1008


async def test_bytes_that_are_no_frames_close_with_a_protocol_error(stand: Stand) -> None:
    async with dial(stand) as chat:
        chat.transport.write(b"\x81\x05hello")
        assert await code(chat) == 1002
    await left_nothing(stand)


async def test_a_gateway_that_leaves_answers_what_it_began_and_closes(tmp_path: Path, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    worker.script = answering(delay_s=0.05)
    async with gateway(tmp_path, lame_duck_s=60.0) as stand:
        stand.work(worker)
        async with dial(stand) as idle, dial(stand) as busy:
            await busy.send(json.dumps(STREAM))
            events = [await hear(busy)]
            stand.stop.set()
            assert await code(idle) == 1001
            while (event := await hear(busy)) != "[DONE]":
                events.append(event)
            assert text(events) == "".join(TOKENS)
            assert await code(busy) == 1001

"""What the access log says of requests that a worker refused, that a client left, and that a client did not read."""

import asyncio
import io
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.conftest import MakeWorker
from tests.gateway.stand import CHAT, STREAM, Stand, gateway, until
from tests.gateway.test_gateway_websocket import dial, small_socket
from tests.gateway.worker_double import Script

from paceline_core.telemetry import BackgroundWriter
from paceline_gateway.telemetry.metrics import LogSinks

pytestmark = pytest.mark.real


async def line_of(stand: Stand, stream: io.StringIO) -> dict[str, Any]:
    """The one line that there will be."""

    def written() -> bool:
        stand.process.requests.sweep()
        return bool(stream.getvalue())

    await until(written)
    (line,) = stream.getvalue().splitlines()
    return dict(json.loads(line))


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ('{"error":{"message":"too long","code":"context_length_exceeded"}}', "context_length_exceeded"),
        ('{"error":{"message":"too long","code":400}}', ""),
        ("no json", ""),
    ],
)
async def test_a_workers_refusal_has_its_code(tmp_path: Path, make_worker: MakeWorker, body: str, code: str) -> None:
    worker, stream = await make_worker(), io.StringIO()
    worker.script = lambda _: Script(status=400, body=body)
    async with gateway(tmp_path, outlets=LogSinks(BackgroundWriter(stream))) as stand:
        stand.work(worker)
        assert (await stand.client.post("/v1/chat/completions", json=CHAT)).text == body
        line = await line_of(stand, stream)
    assert (line["status"], line["outcome"], line["code"]) == (400, "client_error", code)


async def test_a_stream_that_is_left_has_the_input_that_is_charged(tmp_path: Path, make_worker: MakeWorker) -> None:
    worker, stream = await make_worker(), io.StringIO()
    worker.script = lambda _: Script(stall_after=1)
    async with gateway(tmp_path, outlets=LogSinks(BackgroundWriter(stream))) as stand:
        stand.work(worker)
        async with stand.client.stream("POST", "/v1/chat/completions", json=STREAM) as answer:
            await anext(answer.aiter_bytes())
        line = await line_of(stand, stream)
        charged = stand.process.requests.billing.ledger.used("team")
    assert (line["outcome"], line["code"]) == ("cancelled", "client_closed")
    assert line["input"] == charged.input_tokens > 0


@asynccontextmanager
async def deaf_over_http(stand: Stand) -> AsyncIterator[None]:
    body = json.dumps(STREAM).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {stand.key}\r\n"
    _, writer = await asyncio.open_connection(sock=small_socket(stand), limit=1)
    writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    yield
    writer.transport.abort()


@asynccontextmanager
async def deaf_over_websocket(stand: Stand) -> AsyncIterator[None]:
    async with dial(stand, small=True) as chat:
        await chat.send(json.dumps(STREAM))
        yield


@pytest.mark.parametrize("asking", [deaf_over_http, deaf_over_websocket])
async def test_a_client_that_reads_nothing_has_not_closed(
    tmp_path: Path, make_worker: MakeWorker, asking: Callable[[Stand], AbstractAsyncContextManager[None]]
) -> None:
    worker, stream = await make_worker(), io.StringIO()
    worker.script = lambda _: Script(tokens=("x" * 100_000,) * 400)
    async with gateway(tmp_path, {"write_timeout_s": 0.3}, outlets=LogSinks(BackgroundWriter(stream))) as stand:
        stand.work(worker)
        async with asking(stand):
            line = await line_of(stand, stream)
    assert (line["status"], line["outcome"], line["code"]) == (499, "cancelled", "client_stalled")

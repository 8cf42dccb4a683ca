"""curl, the client of every example: what it prints, and what it hears where it asks for more than there is."""

import asyncio
import json
import shutil
from dataclasses import dataclass
from typing import Any

import pytest
from tests.gateway.books import balanced
from tests.gateway.conftest import MakeWorker
from tests.gateway.stand import CHAT, PATIENCE_S, STREAM, Stand, until
from tests.gateway.worker_double import Script

pytestmark = pytest.mark.real
TOLD = "\n%{http_code} %{http_version} %{size_upload} %{num_connects}"


@dataclass(frozen=True, slots=True)
class Told:
    """What curl printed, and what it says of the transfer. `talk` is what it writes with -v."""

    body: bytes
    status: int
    version: str
    uploaded: int
    connects: int
    talk: str
    exit: int


async def start(stand: Stand, *options: str, path: str = "/v1/chat/completions") -> asyncio.subprocess.Process:
    """curl with a key, silent but for what it prints."""
    program = shutil.which("curl")
    assert program is not None, "curl is not on PATH; scripts/services.sh installs it"
    url, key = f"http://127.0.0.1:{stand.port}{path}", f"authorization: Bearer {stand.key}"
    limits = ("--max-time", str(PATIENCE_S), "--noproxy", "*")
    return await asyncio.create_subprocess_exec(
        program, "-sSv", *limits, "-H", key, *options, url,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def curl(stand: Stand, *options: str, stdin: bytes = b"", path: str = "/v1/chat/completions") -> Told:
    """Run it to its end."""
    process = await start(stand, "-w", TOLD, *options, path=path)
    printed, talk = await process.communicate(stdin)
    body, _, told = printed.rpartition(b"\n")
    status, version, uploaded, connects = told.split()
    return Told(
        body,
        int(status),
        version.decode(),
        int(uploaded),
        int(connects),
        talk.decode("latin-1"),
        process.returncode or 0,
    )


def data(body: dict[str, Any]) -> tuple[str, ...]:
    return "-H", "content-type: application/json", "-d", json.dumps(body)


def whole(body: bytes) -> bool:
    return body.count(b"data: ") == 6 and body.endswith(b"data: [DONE]\n\n") and b'" token"' in body


@pytest.mark.parametrize("version", ["--http1.0", "--http1.1"])
async def test_it_asks_and_streams(stand: Stand, make_worker: MakeWorker, version: str) -> None:
    stand.work(await make_worker())
    told = await curl(stand, version, *data(CHAT))
    assert json.loads(told.body)["choices"][0]["message"]["content"] == "Time to first token"
    assert (told.status, told.version, told.exit) == (200, "1.1", 0)
    told = await curl(stand, version, "-N", *data(STREAM))
    assert whole(told.body)
    assert (told.status, told.version, told.exit) == (200, "1.1", 0)
    await balanced(stand, {"ok": 2})


async def test_an_offer_of_http_2_is_refused_in_words(stand: Stand) -> None:
    """It is the ingress's job, and an upgrade that one of two servers overlooks is how requests are smuggled."""
    told = await curl(stand, "--http2", *data(CHAT))
    assert (told.status, told.version, told.exit) == (400, "1.1", 0)
    assert "use plain HTTP/1.1" in json.loads(told.body)["error"]["message"]


async def test_it_prints_each_token_as_it_comes(stand: Stand, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    worker.script = lambda _: Script(stall_after=2)
    stand.work(worker)
    process = await start(stand, "-N", *data(STREAM))
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE_S):
        printed = await process.stdout.readuntil(b'" to"')
    assert b'"Time"' in printed
    process.terminate()
    await process.wait()
    await until(worker.seen[0].closed.is_set)
    await balanced(stand, {"cancelled": 1})


async def test_a_large_body_waits_for_permission_and_arrives_whole(stand: Stand, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    stand.work(worker)
    body = json.dumps(CHAT | {"user": "x" * (3 << 20)}).encode()
    told = await curl(stand, "-H", "expect: 100-continue", "--data-binary", "@-", stdin=body)
    assert (told.status, told.uploaded, told.exit) == (200, len(body), 0)
    assert "HTTP/1.1 100 Continue" in told.talk
    assert worker.seen[0].body == body
    await balanced(stand, {"ok": 1})


async def test_a_body_that_is_too_large_is_not_even_sent(stand: Stand) -> None:
    body = b"x" * (9 << 20)
    told = await curl(stand, "-H", "expect: 100-continue", "--data-binary", "@-", stdin=body)
    assert (told.status, told.uploaded, told.exit) == (413, 0, 0)
    assert json.loads(told.body)["error"]["code"] == "request_too_large"
    assert "100 Continue" not in told.talk
    await balanced(stand, {})


async def test_an_upload_of_unknown_length_is_read(stand: Stand, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    stand.work(worker)
    body = json.dumps(CHAT | {"user": "x" * 300_000}).encode()
    told = await curl(stand, "-X", "POST", "-H", "transfer-encoding: chunked", "-T", "-", stdin=body)
    assert (told.status, told.exit) == (200, 0)
    assert worker.seen[0].body == body


async def test_one_connection_serves_one_url_after_another(stand: Stand, make_worker: MakeWorker) -> None:
    stand.work(await make_worker())
    told = await curl(stand, f"http://127.0.0.1:{stand.port}/health", path="/v1/models")
    assert told.connects == 0
    assert "Re-using existing connection" in told.talk


async def test_http_2_without_asking_is_refused_cleanly(stand: Stand) -> None:
    """An answer in HTTP/1.1 is none to it; that there is one, and an end, is all it can be told."""
    process = await start(stand, "--http2-prior-knowledge", *data(CHAT))
    printed, _ = await process.communicate()
    assert (printed, process.returncode != 0) == (b"", True)
    await until(lambda: not stand.process.server.connections)
    await balanced(stand, {})
    assert await stand.metric("paceline_tenant_requests_total", tenant="_none", outcome="client_error") == 1


async def test_a_handshake_for_a_websocket_is_answered(stand: Stand) -> None:
    fields = {"connection": "upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}
    fields |= {"sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ=="}
    options = [part for name, value in fields.items() for part in ("-H", f"{name}: {value}")]
    process = await start(stand, "-N", *options)
    assert process.stderr is not None
    async with asyncio.timeout(PATIENCE_S):
        talk = await process.stderr.readuntil(b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
    assert b"< HTTP/1.1 101 " in talk
    process.terminate()
    await process.wait()
    await until(lambda: not stand.process.server.connections)

"""A gateway that leaves: who is told when, and that nobody who could not know is turned away."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from tests.gateway.conftest import MakeWorker
from tests.gateway.stand import CHAT, PATIENCE_S, STREAM, Stand, gateway, plain_client, until
from tests.gateway.worker_double import Script

pytestmark = pytest.mark.real
LONG_S = 60.0


@contextlib.asynccontextmanager
async def visitor(stand: Stand) -> AsyncIterator[httpx.AsyncClient]:
    """A client with a connection of its own, made when it is first used."""
    headers = {"authorization": f"Bearer {stand.key}"}
    async with plain_client(base_url=f"http://127.0.0.1:{stand.port}", headers=headers) as client:
        yield client


async def leave(stand: Stand) -> None:
    """Send it the first signal, and wait until its readiness tells."""
    stand.stop.set()
    await until(lambda: _unready(stand))


async def _unready(stand: Stand) -> bool:
    return (await stand.admin.get("/readyz")).status_code == 503


async def ask(client: httpx.AsyncClient) -> tuple[int, str]:
    """The status of a chat, and what it says of the connection."""
    response = await client.post("/v1/chat/completions", json=CHAT)
    return response.status_code, response.headers.get("connection", "keep-alive")


async def test_while_it_settles_requests_are_served_with_connection_close(
    tmp_path: Path, make_worker: MakeWorker
) -> None:
    async with gateway(tmp_path, lame_duck_s=LONG_S) as stand, visitor(stand) as known, visitor(stand) as fresh:
        stand.work(await make_worker())
        assert await ask(known) == (200, "keep-alive")
        await leave(stand)
        assert await ask(known) == (200, "close")
        assert await ask(fresh) == (200, "close")
        stand.abort.set()
        async with asyncio.timeout(PATIENCE_S):
            await stand.run


async def test_a_connection_without_connection_close_may_send_one_more_request_after_the_settle_time(
    stand: Stand, make_worker: MakeWorker
) -> None:
    worker = await make_worker()
    release = asyncio.Event()
    worker.script = lambda _: Script(stall_after=None if release.is_set() else 2)
    stand.work(worker)
    async with visitor(stand) as open_stream, visitor(stand) as known, visitor(stand) as fresh:
        streaming = asyncio.create_task(open_stream.post("/v1/chat/completions", json=STREAM))
        await until(lambda: len(worker.seen) == 1)
        release.set()
        assert await ask(known) == (200, "keep-alive")
        await leave(stand)
        await until(lambda: _turned_away(fresh))
        assert await ask(known) == (200, "close")
        stand.abort.set()
        assert '"code": "draining"' in (await streaming).text


async def _turned_away(client: httpx.AsyncClient) -> bool:
    return await ask(client) == (503, "close")


async def test_an_answer_that_begins_during_the_drain_says_that_the_connection_ends(
    stand: Stand, make_worker: MakeWorker
) -> None:
    worker = await make_worker()
    worker.script = lambda _: Script(delay_s=0.1)
    stand.work(worker)
    await stand.ready()
    asked = asyncio.create_task(stand.client.post("/v1/chat/completions", json=CHAT))
    await until(lambda: len(worker.seen) == 1)
    stand.stop.set()
    response = await asked
    assert (response.status_code, response.headers["connection"]) == (200, "close")


async def test_a_request_that_was_half_sent_is_answered(stand: Stand, make_worker: MakeWorker) -> None:
    stand.work(await make_worker())
    await stand.ready()
    arrive = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield b'{"model": "chat", "messages": '
        await arrive.wait()
        yield b'[{"role": "user", "content": "What is TTFT?"}]}'

    async with visitor(stand) as slow:
        asked = asyncio.create_task(slow.post("/v1/chat/completions", content=body()))
        await until(lambda: stand.process.server.busy == 1)
        await leave(stand)
        arrive.set()
        assert (await asked).status_code == 200
    async with asyncio.timeout(PATIENCE_S):
        await stand.run

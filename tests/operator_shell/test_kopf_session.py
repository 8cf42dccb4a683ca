"""kopf's session against a small server: what liveness and completeness lean on is seen where it happens."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import kopf
import pytest
from aiohttp import web

from paceline_core.clock import ManualClock
from paceline_core.kube.client.credentials import Credentials
from paceline_core.kube.client.watch import WatchLiveness
from paceline_core.objects.metadata import INFERENCE_SERVICE
from paceline_operator.handlers import KopfLogin, NoDiffs, NoProgress, registry_of, settings

PATH = "/apis/paceline.dev/v1alpha1/inferenceservices"


class Token:
    """Credentials of a plain HTTP server; the token changes with each login."""

    tls: ssl.SSLContext | None = None
    server_name = None
    proxy = None

    def __init__(self, server: str) -> None:
        self.server = server
        self.logins = 0

    async def renew(self) -> None:
        self.logins += 1

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.logins}"}


class Peer:
    """An API server that lists one of two objects and watches in chunks when told."""

    def __init__(self) -> None:
        self.chunks: asyncio.Queue[bytes] = asyncio.Queue()
        self.tokens: list[str] = []
        self.status = 200

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.tokens.append(request.headers["Authorization"])
        if "watch" not in request.query:
            metadata = {"resourceVersion": "7", "continue": "more", "remainingItemCount": 1}
            return web.json_response({"items": [{"metadata": {}}], "metadata": metadata}, status=self.status)
        response = web.StreamResponse()
        await response.prepare(request)
        while chunk := await self.chunks.get():
            await response.write(chunk)
        return response


@asynccontextmanager
async def served(peer: Peer) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_get(PATH, peer.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert site._server is not None
    port = cast("Any", site._server).sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


async def test_each_chunk_of_a_watch_stamps_its_pulse_and_each_list_is_told() -> None:
    clock, peer, listed = ManualClock(), Peer(), list[str]()
    pulse = WatchLiveness(INFERENCE_SERVICE, clock)
    async with served(peer) as server, asyncio.timeout(10.0):
        session = KopfLogin(cast("Credentials", Token(server)), {INFERENCE_SERVICE: pulse}, listed.append, clock)
        login = await session.login()
        http = login.aiohttp_session
        async with http.get(f"{server}{PATH}") as answer:
            assert await answer.json() == {"metadata": {"resourceVersion": "7"}, "items": []}
        assert listed == [INFERENCE_SERVICE]
        async with http.get(f"{server}{PATH}", params={"watch": "true"}) as stream:
            chunks = stream.content.iter_chunked(1 << 20)
            for line in (b"one\n", b"two\n"):
                clock.advance(100.0)
                assert pulse.age(clock.monotonic()) >= 100.0
                peer.chunks.put_nowait(line)
                assert await anext(chunks) == line
                assert pulse.age(clock.monotonic()) == 0.0
            peer.chunks.put_nowait(b"")
        assert listed == [INFERENCE_SERVICE]
        await http.close()


async def test_a_refused_list_neither_stamps_nor_counts_as_one() -> None:
    clock, peer, listed = ManualClock(), Peer(), list[str]()
    peer.status = 403
    pulse = WatchLiveness(INFERENCE_SERVICE, clock)
    clock.advance(50.0)
    async with served(peer) as server:
        session = KopfLogin(cast("Credentials", Token(server)), {INFERENCE_SERVICE: pulse}, listed.append, clock)
        http = (await session.login()).aiohttp_session
        async with http.get(f"{server}{PATH}") as answer:
            assert answer.status == 403
        await http.close()
    assert (listed, pulse.age(clock.monotonic())) == ([], 50.0)


async def test_every_request_carries_the_token_of_now() -> None:
    peer = Peer()
    async with served(peer) as server:
        token = Token(server)
        http = (await KopfLogin(cast("Credentials", token), {}, lambda _: None, ManualClock()).login()).aiohttp_session
        for _ in range(2):
            async with http.get(f"{server}{PATH}"):
                await token.renew()
        await http.close()
    assert peer.tokens == ["Bearer 1", "Bearer 2"]


def test_kopf_is_told_to_write_nothing_and_to_keep_nothing() -> None:
    made = settings()
    assert not made.posting.enabled
    assert made.scanning.disabled
    assert (made.watching.server_timeout, made.watching.client_timeout, made.watching.chunk_size) == (290, 310, 1)
    assert isinstance(made.persistence.diffbase_storage, NoDiffs)
    assert isinstance(made.persistence.progress_storage, NoProgress)


def test_handlers_are_events_alone_so_that_kopf_patches_nothing() -> None:
    async def login() -> None:
        return None

    registry = registry_of((INFERENCE_SERVICE, "Tenant"), lambda *_: None, login)
    assert len(registry._watching.get_all_handlers()) == 2
    for others in (registry._changing, registry._spawning, registry._indexing, registry._webhooks):
        assert not others.get_all_handlers()
    assert isinstance(registry, kopf.OperatorRegistry)
    with pytest.raises(KeyError):
        registry_of(("Nonsense",), lambda *_: None, login)

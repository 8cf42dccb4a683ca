"""A small aiohttp server on loopback that answers as a test scripts it: faults that a real API server makes rarely."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import yaml
from aiohttp import web

from paceline_core.clock import Clock, ManualClock
from paceline_core.kube.client.client import ClientTimeouts, KubeClient
from paceline_core.kube.client.credentials import Access

Script = Callable[[web.Request], Awaitable[web.StreamResponse]]
QUICK = ClientTimeouts(call=2.0, silence=0.3, watch=5.0)


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it came."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any


@dataclass
class Peer:
    """Answers in the scripted order, watches from a queue of their own; what is not scripted is a 599."""

    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    answers: deque[Script] = field(default_factory=deque)
    watches: deque[Script] = field(default_factory=deque)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.asked.append(
            Asked(request.method, request.path, request.query, request.headers, orjson.loads(body) if body else None)
        )
        queue = self.watches if "watch" in request.query else self.answers
        return await (queue.popleft() if queue else status(599, "not scripted"))(request)


def answer(body: Any, code: int = 200, **headers: str) -> Script:
    """A whole JSON answer."""

    async def script(request: web.Request) -> web.StreamResponse:
        return web.Response(status=code, body=orjson.dumps(body), headers=headers, content_type="application/json")

    return script


def status(code: int, message: str, reason: str = "", details: Any = None, **headers: str) -> Script:
    """A refusal as Kubernetes words it."""
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": reason}
    return answer({**body, "code": code, "details": details or {}}, code, **headers)


def listed(*items: Any, version: str = "10", more: str = "") -> Script:
    """A list, or a page of one."""
    return answer({"metadata": {"resourceVersion": version, "continue": more}, "items": list(items) or None})


def stream(*chunks: bytes, hang: bool = False, cut: bool = False) -> Script:
    """A watch: these chunks, then its end, a silence, or a cut connection."""

    async def script(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        for chunk in chunks:
            await response.write(chunk)
            await asyncio.sleep(0)
        if cut and request.transport is not None:
            request.transport.close()
        elif hang:
            await asyncio.sleep(60)
        return response

    return script


def mute() -> Script:
    """Takes the request and never says anything."""

    async def script(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(60)
        return web.Response()

    return script


def line(kind: str, item: Any) -> bytes:
    """One event of a watch."""
    return orjson.dumps({"type": kind, "object": item}) + b"\n"


def config_map(name: str, version: int, namespace: str = "default") -> dict[str, Any]:
    """Any object."""
    return {"metadata": {"name": name, "namespace": namespace, "resourceVersion": str(version), "uid": f"u-{name}"}}


@asynccontextmanager
async def serving() -> AsyncIterator[Peer]:
    """A peer on a free port; its open streams are cut at the end."""
    peer = Peer()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", peer.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    peer.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield peer
    finally:
        await runner.cleanup()


def kubeconfig(path: Path, user: Mapping[str, Any], **cluster: Any) -> Path:
    """A kubeconfig of one context."""
    context = {"name": "it", "context": {"cluster": "it", "user": "it"}}
    document = {
        "clusters": [{"name": "it", "cluster": cluster}],
        "users": [{"name": "it", "user": dict(user)}],
        "contexts": [context],
        "current-context": "it",
    }
    path.write_text(yaml.safe_dump(document))
    return path


@asynccontextmanager
async def connected(
    peer: Peer, folder: Path, clock: Clock | None = None, limits: ClientTimeouts = QUICK
) -> AsyncIterator[KubeClient]:
    """A client of the peer, by a kubeconfig with a token file in `folder`."""
    (folder / "token").write_text("first\n")
    path = kubeconfig(folder / "config", {"tokenFile": str(folder / "token")}, server=peer.url)
    api = await KubeClient.connect(Access(path), clock or ManualClock(), limits, jitter=lambda: 1.0)
    try:
        yield api
    finally:
        await api.close()

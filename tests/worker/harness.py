"""A worker in the test's own event loop, behind a scripted engine in a thread, and clients that speak ASGI to it."""

import asyncio
import contextlib
import json
import shutil
import socket
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import httpx
from openai import AsyncOpenAI
from tests.worker.scripted_engine import Script, ScriptedEngine

from paceline_core.auth import TokenSigner, jwk_set, new_signing_key, public_jwk
from paceline_core.auth.internal_token import HEADER
from paceline_core.clock import Clock, SystemClock
from paceline_workers import demo
from paceline_workers.config import WorkerConfig
from paceline_workers.messages import ToEngine
from paceline_workers.server.app import create_app
from paceline_workers.server.engine.client import EngineState
from paceline_workers.server.engine.link import EngineHandle, EngineLink, Receive
from paceline_workers.server.http.exchange import App, Event
from paceline_workers.server.process import WorkerServer, create_worker
from paceline_workers.server.serve import http_server

SERVICE = "team/chat"
LIMIT_S = 10.0
Headers = Mapping[str, str]


def settings(**changes: Any) -> WorkerConfig:
    """A worker of the demo model."""
    plain: dict[str, Any] = {
        "name": "chat-main-0",
        "service": SERVICE,
        "revision": "abcdefghij",
        "pool": "main",
        "model": "builtin://demo",
        "served_names": ["chat", "team/chat"],
        "listen": {},
        "anonymous": True,
        "drain_timeout_s": 0.3,
        "watchdog_s": 20.0,
    }
    return WorkerConfig.model_validate(plain | changes)


def demo_with(template: str, folder: Path) -> str:
    """A copy of the demo model, in `folder`, with another chat template: its source."""
    place = folder / "model"
    shutil.copytree(demo.FOLDER, place)
    settings = json.loads((place / "tokenizer_config.json").read_text())
    (place / "tokenizer_config.json").write_text(json.dumps(settings | {"chat_template": template}))
    return f"file://{place}"


class ThreadEngine:
    """An EngineHandle whose process is a thread; killing it closes its socket."""

    pid = 0

    def __init__(self, link: EngineLink, thread: threading.Thread, cpu: Callable[[], float | None]) -> None:
        self._link = link
        self._thread = thread
        self.cpu_seconds = cpu

    def send(self, message: ToEngine) -> None:
        self._link.send(message)

    def kill(self) -> None:
        self._link.abort()

    async def ended(self) -> int:
        await asyncio.shield(self._link.lost)
        await asyncio.to_thread(self._thread.join, LIMIT_S)
        return -9

    async def stop(self) -> None:
        self.kill()
        await self.ended()


class Launcher:
    """Starts one scripted engine after the other: the scripts in turn, the last one again and again.

    `cpu`: seconds of CPU time that it says each has used.
    """

    def __init__(self, *scripts: Script, cpu: Callable[[], float | None] = lambda: 0.0) -> None:
        self._scripts = list(scripts)
        self._cpu = cpu
        self.count = 0

    async def __call__(self, receive: Receive) -> EngineHandle:
        script = self._scripts[min(self.count, len(self._scripts) - 1)]
        self.count += 1
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        thread = threading.Thread(target=ScriptedEngine(theirs, script).run, daemon=True)
        thread.start()
        loop = asyncio.get_running_loop()
        _, link = await loop.create_unix_connection(lambda: EngineLink(receive), sock=ours)
        return ThreadEngine(link, thread, self._cpu)


class Rig:
    """A running worker and its clients."""

    def __init__(self, worker: WorkerServer, app: App, gateway_headers: Headers, autoscaler_headers: Headers) -> None:
        self.worker = worker
        self.app = app
        self.gateway_headers = gateway_headers
        self.autoscaler_headers = autoscaler_headers
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        self.http = httpx.AsyncClient(transport=transport, base_url="http://worker", timeout=LIMIT_S)

    async def reaches(self, state: EngineState) -> None:
        """Wait until the engine is in `state`."""
        await eventually(lambda: self.worker.parts.engine.state is state)

    def call(self, path: str, body: Any = None, headers: Headers | None = None) -> "Call":
        """A request whose events the test sees one by one; GET without a body."""
        return Call(self.app, path, b"" if body is None else json.dumps(body).encode(), headers or {})


@contextlib.asynccontextmanager
async def listening(rig: Rig) -> AsyncIterator[str]:
    """The rig's worker on a real port of this machine, for clients that bring their own transport: `host:port`."""
    server = http_server(rig.worker)
    with socket.create_server(("127.0.0.1", 0)) as sock:
        serving = asyncio.create_task(server.serve([sock]))
        try:
            await eventually(lambda: server.started)
            yield "{}:{}".format(*sock.getsockname())
        finally:
            server.should_exit = True
            await serving


def openai_client(address: str, **settings: Any) -> AsyncOpenAI:
    """The official client of a listening worker."""
    plain: dict[str, Any] = {"api_key": "none", "timeout": LIMIT_S, "max_retries": 0}
    return AsyncOpenAI(base_url=f"http://{address}/v1", **(plain | settings))


class Call:
    """One ASGI request in a task. The client may leave, or stop reading."""

    def __init__(self, app: App, path: str, body: bytes, headers: Headers) -> None:
        self._body = [body]
        self._left = asyncio.Event()
        self._reads = asyncio.Event()
        self._reads.set()
        self.events: asyncio.Queue[Event] = asyncio.Queue()
        self.read = b""
        scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "scheme": "http",
            "method": "POST" if body else "GET",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        }
        self.task = asyncio.ensure_future(app(scope, self._receive, self._send))

    def leave(self) -> None:
        """The client closes its connection."""
        self._left.set()

    def stall(self) -> None:
        """The client reads nothing from now on."""
        self._reads.clear()

    async def status(self) -> int:
        """The status, once it is out."""
        event = await asyncio.wait_for(self.events.get(), LIMIT_S)
        return int(event["status"])

    async def write(self) -> bytes:
        """The body bytes of one write."""
        event = await asyncio.wait_for(self.events.get(), LIMIT_S)
        self.read += event["body"]
        return bytes(event["body"])

    async def done(self) -> bytes:
        """All body bytes, once the application has returned."""
        await asyncio.wait_for(self.task, LIMIT_S)
        while not self.events.empty():
            self.read += self.events.get_nowait().get("body", b"")
        return self.read

    async def _receive(self) -> Event:
        if self._body:
            return {"type": "http.request", "body": self._body.pop(), "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, event: Event) -> None:
        await self._reads.wait()
        self.events.put_nowait(event)


async def eventually(holds: Any) -> None:
    """Let the loop run until `holds()`; fails after LIMIT_S."""
    async with asyncio.timeout(LIMIT_S):
        while not holds():  # noqa: ASYNC110 - what is waited for happens in another thread or process
            await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def running(
    *scripts: Script,
    folder: Path,
    ready: bool = True,
    write_limit_s: float = LIMIT_S,
    clock: Clock | None = None,
    **changes: Any,
) -> AsyncIterator[Rig]:
    """A worker whose engines follow `scripts`; its trust file lies in `folder`."""
    keys = {signer: new_signing_key() for signer in ("gateway", "autoscaler")}
    trust = folder / "jwks.json"
    trust.write_text(json.dumps(jwk_set([public_jwk(key, signer) for signer, key in keys.items()])))
    clock = clock or SystemClock()
    headers = {name: {HEADER: TokenSigner(key, name).token(SERVICE, clock.utc())} for name, key in keys.items()}
    launcher = Launcher(*scripts)
    worker = create_worker(settings(trust_bundle=trust, **changes), launcher, clock, write_limit_s=write_limit_s)
    rig = Rig(worker, create_app(worker), headers["gateway"], headers["autoscaler"])
    engine = asyncio.create_task(worker.parts.engine.run())
    try:
        if ready:
            await rig.reaches(EngineState.UP)
        yield rig
    finally:
        engine.cancel()
        await asyncio.gather(engine, return_exceptions=True)
        await rig.http.aclose()
        await worker.close()


def resuming(body: Any, *choices: Mapping[str, Any], **stream: Any) -> tuple[bytes, dict[str, str]]:
    """What a gateway sends to continue a stream: body and header."""
    resume = {"v": 1, "id": "chatcmpl-first", "created": 7, "choices": list(choices)} | stream
    told = json.dumps(resume).encode()
    return json.dumps(body).encode() + told, {"x-paceline-resume": str(len(told))}


def events(body: bytes) -> list[Any]:
    """The JSON of each SSE event, `[DONE]` as text; comments left out."""
    lines = [line.removeprefix(b"data: ") for line in body.split(b"\n") if line.startswith(b"data: ")]
    return [line.decode() if line == b"[DONE]" else json.loads(line) for line in lines]


def text_of(body: bytes) -> str:
    """The streamed text of a chat."""
    chunks = [event for event in events(body) if isinstance(event, dict)]
    return "".join(choice["delta"].get("content", "") for chunk in chunks for choice in chunk.get("choices", []))

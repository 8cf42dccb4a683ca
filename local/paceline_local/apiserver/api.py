"""The part of the API server that components use, on one Unix socket; the routes are in `paceline_core.kube.local`.

Handlers run on one loop over the store, without a lock: each does its work between two awaits. A silent watch sends
PING lines, so that a reader can tell a quiet cluster from a dead one.
"""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, Field

from paceline_core.clock import Clock
from paceline_core.errors import Conflict, InvalidInput, NotFound, PacelineError
from paceline_core.kube.cluster import ObjectKey, Scale, ScaleTarget, ServiceRef
from paceline_core.kube.local import PING_S
from paceline_core.process import QuietServer
from paceline_local.apiserver import ENDPOINTS, ObjectStore
from paceline_local.apiserver.watch_feed import Line

NO_CONTENT = 204


class ScaleBody(BaseModel):
    replicas: int = Field(ge=0)
    version: str


class StatusBody(BaseModel):
    """A manager's partial status; with a version, only for that version of the object."""

    manager: str = Field(min_length=1, max_length=128)
    status: dict[str, Any]
    version: str = ""


class LeaseBody(BaseModel):
    holder: str = Field(min_length=1)
    ttl: float = Field(gt=0, le=3600)


class ReleaseBody(BaseModel):
    holder: str


class EventBody(BaseModel):
    kind: str
    key: str
    type: str
    reason: str
    message: str
    extra: dict[str, str] = {}


def make_app(store: ObjectStore, clock: Clock, on_change: Callable[[], None]) -> FastAPI:
    """The routes over a store; `on_change` is called after a scale has changed."""
    app = FastAPI(openapi_url=None)
    app.add_exception_handler(PacelineError, _refused)

    @app.get("/watch/{kind}")
    async def watch(kind: str) -> StreamingResponse:
        return _stream(store, kind)

    @app.get("/watch-endpoints")
    async def watch_endpoints() -> StreamingResponse:
        return _stream(store, ENDPOINTS)

    @app.get("/scale/{namespace}/{service}/{pool}/{track}")
    async def get_scale(namespace: str, service: str, pool: str, track: str) -> Scale:
        return store.scales.get(ScaleTarget(ObjectKey(namespace, service), pool, track))

    @app.put("/scale/{namespace}/{service}/{pool}/{track}")
    async def set_scale(namespace: str, service: str, pool: str, track: str, body: ScaleBody) -> Scale:
        scale = store.scales.set(ScaleTarget(ObjectKey(namespace, service), pool, track), body.replicas, body.version)
        on_change()
        return scale

    @app.patch("/status/{kind}/{key:path}", status_code=NO_CONTENT)
    async def patch_status(kind: str, key: str, body: StatusBody) -> None:
        store.objects.patch_status(kind, ObjectKey.parse(key), body.status, body.manager, body.version)

    _add_states(app, store)
    _add_leases_and_events(app, store, clock)
    return app


def _add_states(app: FastAPI, store: ObjectStore) -> None:
    @app.get("/states")
    async def list_states() -> list[dict[str, str]]:
        return [{"service": str(each.key), "uid": each.uid} for each in store.states.list()]

    @app.get("/state/{namespace}/{service}")
    async def get_state(namespace: str, service: str, uid: str) -> dict[str, str]:
        return dict(store.states.get(ServiceRef(ObjectKey(namespace, service), uid)))

    @app.put("/state/{namespace}/{service}", status_code=NO_CONTENT)
    async def put_state(namespace: str, service: str, uid: str, body: dict[str, str]) -> None:
        store.states.put(ServiceRef(ObjectKey(namespace, service), uid), body)

    @app.delete("/state/{namespace}/{service}", status_code=NO_CONTENT)
    async def delete_state(namespace: str, service: str, uid: str) -> None:
        store.states.delete(ServiceRef(ObjectKey(namespace, service), uid))


def _add_leases_and_events(app: FastAPI, store: ObjectStore, clock: Clock) -> None:
    @app.put("/lease/{name}", status_code=NO_CONTENT)
    async def take(name: str, body: LeaseBody) -> None:
        store.leases.take(name, body.holder, body.ttl, clock.monotonic())

    @app.get("/lease/{name}")
    async def holder(name: str) -> dict[str, str]:
        return {"holder": store.leases.holder(name)}

    @app.delete("/lease/{name}", status_code=NO_CONTENT)
    async def release(name: str, body: ReleaseBody) -> None:
        store.leases.release(name, body.holder)

    @app.post("/events", status_code=NO_CONTENT)
    async def post_event(body: EventBody) -> None:
        store.add_event(body.model_dump(), clock.utc())


def _stream(store: ObjectStore, topic: str) -> StreamingResponse:
    first, feed = store.watch(topic)

    async def lines() -> AsyncIterator[bytes]:
        line: Line | None = first
        try:
            while line or not feed.closed:
                yield json.dumps(line or {"type": "PING"}, separators=(",", ":")).encode() + b"\n"
                line = await feed.next(PING_S)
        finally:
            store.topics.leave(topic, feed)

    return StreamingResponse(lines(), media_type="application/x-ndjson")


async def _refused(_: Request, error: Exception) -> Response:
    statuses = {NotFound: 404, Conflict: 409, InvalidInput: 422}
    return JSONResponse({"error": str(error)}, statuses.get(type(error), 500))


BACKLOG = 128
GRACE_S = 2


@contextlib.asynccontextmanager
async def serving(app: FastAPI, path: Path) -> AsyncIterator[None]:
    """Serve while the block runs. The socket listens from the start, and only this user can connect to it."""
    config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=GRACE_S)
    server = QuietServer(config)
    with _listening(path) as listener:
        task = asyncio.create_task(server.serve(sockets=[listener]), name="api")
        try:
            yield
        finally:
            server.should_exit = True
            await asyncio.wait([task], timeout=GRACE_S + 1)
            task.cancel()


@contextlib.contextmanager
def _listening(path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        try:
            path.chmod(0o600)
            listener.listen(BACKLOG)
            listener.setblocking(False)
            yield listener
        finally:
            path.unlink(missing_ok=True)

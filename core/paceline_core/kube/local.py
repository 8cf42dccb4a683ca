"""The Cluster seam over the local supervisor's Unix socket: HTTP, JSON bodies, watches as lines of JSON.

Routes: GET /watch/{kind}, GET /watch-endpoints, GET and PUT /scale/{namespace}/{service}/{pool}/{track},
PATCH /status/{kind}/{key}, GET /states, GET, PUT and DELETE /state/{namespace}/{service}?uid=,
GET, PUT and DELETE /lease/{name}, POST /events.
A watch line is {"type": "LISTED", "items": [...]}, {"type": "CHANGED" | "GONE", "item": ...} or {"type": "PING"}.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import httpx

from paceline_core.clock import Clock, SystemClock
from paceline_core.errors import Conflict, NotFound, PacelineError, Unreachable
from paceline_core.kube.cluster import (
    Deleted,
    Endpoint,
    Event,
    Listed,
    Manifest,
    ObjectKey,
    Scale,
    ScaleTarget,
    ServiceEndpoints,
    ServiceRef,
    StartStage,
    Upserted,
    WatchEvent,
    WatchLost,
)
from paceline_core.telemetry import get_logger

T = TypeVar("T")
CALL_LIMIT_S = 5.0
SILENCE_LIMIT_S = 15.0
PING_S = 5.0
_BACKOFF_S = (0.1, 0.2, 0.5, 1.0, 2.0)
_NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Passed to each client, which would otherwise read the system's certificates and block the loop for 50 ms."""
_log = get_logger(__name__)


class LocalLeases:
    """The supervisor's leases; `call` sends one request."""

    def __init__(self, call: Callable[..., Awaitable[Any]]) -> None:
        self._call = call

    async def acquire(self, name: str, holder: str, ttl_s: float) -> bool:
        try:
            await self._call("PUT", f"/lease/{name}", {"holder": holder, "ttl": ttl_s})
        except Conflict:
            return False
        return True

    async def holder(self, name: str) -> str:
        found: Mapping[str, str] = await self._call("GET", f"/lease/{name}")
        return found["holder"]

    async def release(self, name: str, holder: str) -> None:
        await self._call("DELETE", f"/lease/{name}", {"holder": holder})


class LocalCluster:
    def __init__(self, socket: Path, clock: Clock | None = None) -> None:
        self._socket = socket
        self._clock = clock or SystemClock()
        self._http = self._client(CALL_LIMIT_S)
        self.leases = LocalLeases(self._call)

    async def close(self) -> None:
        await self._http.aclose()

    def watch(self, kind: str) -> AsyncIterator[WatchEvent[Manifest]]:
        return self._watch(f"/watch/{kind}", dict)

    def watch_endpoints(self) -> AsyncIterator[WatchEvent[ServiceEndpoints]]:
        return self._watch("/watch-endpoints", endpoints_from)

    async def get_scale(self, target: ScaleTarget) -> Scale:
        return Scale(**await self._call("GET", scale_path(target)))

    async def set_scale(self, target: ScaleTarget, replicas: int, version: str) -> Scale:
        return Scale(**await self._call("PUT", scale_path(target), {"replicas": replicas, "version": version}))

    async def scale_writer(self, target: ScaleTarget) -> str:  # noqa: ARG002 - the seam's
        """Unknown: the supervisor keeps no field managers of scales."""
        return ""

    async def patch_status(
        self, kind: str, key: ObjectKey, status: Mapping[str, Any], manager: str, version: str = ""
    ) -> None:
        await self._call(
            "PATCH", f"/status/{kind}/{key}", {"manager": manager, "status": dict(status), "version": version}
        )

    async def get_state(self, service: ServiceRef) -> Mapping[str, str] | None:
        try:
            data: Mapping[str, str] = await self._call("GET", state_path(service))
        except NotFound:
            return None
        return data

    async def put_state(self, service: ServiceRef, data: Mapping[str, str]) -> None:
        await self._call("PUT", state_path(service), dict(data))

    async def list_states(self) -> tuple[ServiceRef, ...]:
        found = await self._call("GET", "/states")
        return tuple(ServiceRef(ObjectKey.parse(item["service"]), item["uid"]) for item in found)

    async def delete_state(self, service: ServiceRef) -> None:
        await self._call("DELETE", state_path(service))

    async def event(self, event: Event) -> None:
        try:
            await self._call("POST", "/events", {**asdict(event), "key": str(event.key)})
        except PacelineError as error:
            _log.warning("event not posted", extra={"reason": event.reason, "error": str(error)})

    def _client(self, read_limit: float) -> httpx.AsyncClient:
        transport = httpx.AsyncHTTPTransport(uds=str(self._socket), verify=_NO_TLS)
        timeout = httpx.Timeout(CALL_LIMIT_S, read=read_limit)
        return httpx.AsyncClient(transport=transport, base_url="http://supervisor", timeout=timeout)

    async def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        try:
            response = await self._http.request(method, path, json=body)
        except httpx.HTTPError as error:
            raise Unreachable(f"the supervisor did not answer {method} {path}: {error!r}") from None
        _check(response.status_code, response.text)
        return response.json() if response.content else None

    async def _watch(self, path: str, read: Callable[[Any], T]) -> AsyncIterator[WatchEvent[T]]:
        failures = 0
        while True:
            try:
                async with self._client(SILENCE_LIMIT_S) as http, http.stream("GET", path) as response:
                    _check(response.status_code, path)
                    async for line in response.aiter_lines():
                        failures = 0
                        event = _event(json.loads(line), read)
                        if event is not None:
                            yield event
                reason = "the supervisor closed the watch"
            except (httpx.HTTPError, PacelineError) as error:
                reason = str(error) or type(error).__name__
            yield WatchLost(reason)
            await asyncio.sleep(_BACKOFF_S[min(failures, len(_BACKOFF_S) - 1)])
            failures += 1


def without_second_wakes(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """A loop's exception handler that ignores one error: a future is already done when its result is set.

    When 1,024 sockets or more are ready at once, libuv polls several times in one turn, and anyio, with which httpx
    reads a Unix socket, has each poll set the result of the same future. The first one counts, nothing is lost. A
    gateway with many open streams would write a stack trace for each of the others.
    """
    twice = isinstance(context.get("exception"), asyncio.InvalidStateError)
    if not (twice and "set_result" in context["message"]):
        loop.default_exception_handler(context)


def scale_path(target: ScaleTarget) -> str:
    return f"/scale/{target.service}/{target.pool}/{target.track}"


def state_path(service: ServiceRef) -> str:
    return f"/state/{service.key}?uid={service.uid}"


def endpoints_from(data: Mapping[str, Any]) -> ServiceEndpoints:
    return ServiceEndpoints(ObjectKey.parse(data["service"]), tuple(_endpoint(item) for item in data["endpoints"]))


def _endpoint(item: Mapping[str, Any]) -> Endpoint:
    return Endpoint(**{**item, "stage": item["stage"] and StartStage(item["stage"])})


def endpoints_json(item: ServiceEndpoints) -> dict[str, Any]:
    """The inverse of `endpoints_from`."""
    return {"service": str(item.service), "endpoints": [asdict(endpoint) for endpoint in item.endpoints]}


def _event(line: Mapping[str, Any], read: Callable[[Any], T]) -> WatchEvent[T] | None:
    match line["type"]:
        case "LISTED":
            return Listed(tuple(read(item) for item in line["items"]))
        case "CHANGED":
            return Upserted(read(line["item"]))
        case "GONE":
            return Deleted(read(line["item"]))
    return None


def _check(status: int, text: str) -> None:
    errors: dict[int, type[PacelineError]] = {404: NotFound, 409: Conflict}
    if status >= 400:
        raise errors.get(status, Unreachable)(f"{status}: {text[:200]}")

"""Requests to a Kubernetes API server: plain data in, plain data or a PacelineError out, each with a time limit.

One aiohttp session on keep-alive connections, orjson, no compression (it costs the server more than it saves here).
Nothing is retried here, with one exception: after a 401 or a failed TLS handshake the credentials are read again, at
most every `RENEW_GAP_S`, and the request is sent once more. Callers are level-triggered and decide about all other
retries. Invariant: no answer larger than `BODY_LIMIT` is held. Known hole: a POST that timed out may have been applied;
the next one then raises Conflict.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
import orjson

from paceline_core.clock import Clock, SystemClock
from paceline_core.errors import InvalidInput, Unreachable
from paceline_core.kube.client.credentials import Access, Credentials
from paceline_core.kube.client.errors import LogLimiter, api_error
from paceline_core.kube.client.resource import Resource
from paceline_core.kube.cluster import Manifest, ObjectKey

BODY_LIMIT: Final = 64 << 20
PAGE: Final = 100
RENEW_GAP_S: Final = 5.0
JSON: Final = "application/json"
APPLY: Final = "application/apply-patch+yaml"
MERGE: Final = "application/merge-patch+json"
NO_VERSION: Final = "1"
"""No object has this version: etcd counts from 1 and the first write is 2. The server ignores it for a create."""


@dataclass(frozen=True, slots=True)
class ClientTimeouts:
    """Seconds. A watch silent for `silence` is restarted from where it was. Bookmarks come each minute, but the first
    one of an idle kind may take two (measured on 1.36), so silence alone proves nothing."""

    call: float = 10.0
    silence: float = 90.0
    watch: float = 290.0


@dataclass(frozen=True, slots=True)
class ObjectList:
    """A complete list and the version from which a watch continues."""

    items: list[Manifest]
    version: str


def unchanged(manifest: Manifest) -> Manifest:
    return manifest


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    path: str
    params: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    content: str = JSON

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


class KubeClient:
    """One API server, with one identity. Made by `connect`; `close` it."""

    def __init__(
        self,
        credentials: Credentials,
        clock: Clock | None = None,
        limits: ClientTimeouts | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.clock = clock or SystemClock()
        self.limits = limits or ClientTimeouts()
        self.jitter = jitter
        self.sparse = LogLimiter(self.clock)
        self._credentials = credentials
        self._renewing = asyncio.Lock()
        self._renewed = self.clock.monotonic()
        # No cap on connections: callers bound their own calls, and each watch holds one for as long as it lives.
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=30)
        headers = {"Accept": JSON, "Accept-Encoding": "identity", "User-Agent": "paceline"}
        self._session = aiohttp.ClientSession(connector=connector, headers=headers, cookie_jar=aiohttp.DummyCookieJar())

    @classmethod
    async def connect(
        cls,
        access: Access,
        clock: Clock | None = None,
        limits: ClientTimeouts | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> "KubeClient":
        """Read the credentials without sending a request. Raises InvalidInput or Unreachable."""
        credentials = Credentials(access)
        await credentials.renew()
        return cls(credentials, clock, limits, jitter)

    async def close(self) -> None:
        await self._session.close()

    async def get(self, resource: Resource, key: ObjectKey, subresource: str = "") -> Manifest:
        return await self._manifest(_Request("GET", resource.path(key, subresource)))

    async def list(
        self, resource: Resource, namespace: str = "", *, selector: str = "", fields: str = ""
    ) -> list[Manifest]:
        """All objects of one namespace or of all, read in pages; `selector` by labels, `fields` by fields."""
        return (await self.snapshot(resource, namespace, selector=selector, fields=fields)).items

    async def snapshot(
        self,
        resource: Resource,
        namespace: str = "",
        *,
        selector: str = "",
        fields: str = "",
        trim: Callable[[Manifest], Manifest] = unchanged,
    ) -> ObjectList:
        """All objects and their common version. Raises Refused with status 410 when the pages' version expired.

        `trim` is applied to each object with its page, so that a list of thousands is never in memory untrimmed.
        """
        params = _filled({"limit": str(PAGE), "labelSelector": selector, "fieldSelector": fields})
        items: list[Manifest] = []
        while True:
            page = await self._manifest(_Request("GET", resource.collection(namespace), params))
            for item in page.get("items") or ():  # items of built-in kinds have no kind
                item.setdefault("apiVersion", resource.api_version)
                item.setdefault("kind", resource.kind)
                items.append(trim(item))
            metadata = page.get("metadata") or {}
            if not metadata.get("continue"):
                return ObjectList(items, str(metadata.get("resourceVersion", "")))
            params = {**params, "continue": str(metadata["continue"])}

    async def apply(
        self,
        resource: Resource,
        body: Manifest,
        manager: str,
        *,
        force: bool = True,
        subresource: str = "",
    ) -> Manifest:
        """Server-side apply to the object that `body.metadata` names; a uid there guards it. Raises Conflict.

        Without force, a value that differs from another manager's is a Conflict; but if another manager's values are
        equal or untouched, the object gets both managers. `apply_new` prevents that.
        """
        params = {"fieldManager": manager, "force": "true" if force else "false"}
        path = resource.path(key_of(body), subresource)
        return await self._manifest(_Request("PATCH", path, params, orjson.dumps(body), APPLY))

    async def apply_new(self, resource: Resource, body: Manifest, manager: str) -> Manifest:
        """Server-side apply that only creates; an existing object of that name is unchanged and a Conflict."""
        guarded = {**body, "metadata": {**body["metadata"], "resourceVersion": NO_VERSION}}
        return await self.apply(resource, guarded, manager, force=False)

    async def create(self, resource: Resource, namespace: str, body: Manifest, manager: str = "") -> Manifest:
        path, params = resource.collection(namespace), _filled({"fieldManager": manager})
        return await self._manifest(_Request("POST", path, params, orjson.dumps(body)))

    async def replace(
        self, resource: Resource, key: ObjectKey, body: Manifest, subresource: str = "", manager: str = ""
    ) -> Manifest:
        """PUT; a resourceVersion in the body guards it. Raises Conflict, NotFound."""
        path, params = resource.path(key, subresource), _filled({"fieldManager": manager})
        return await self._manifest(_Request("PUT", path, params, orjson.dumps(body)))

    async def merge(
        self, resource: Resource, key: ObjectKey, patch: Manifest, subresource: str = "", manager: str = ""
    ) -> Manifest:
        """JSON merge patch: null removes. Raises NotFound."""
        path, params = resource.path(key, subresource), _filled({"fieldManager": manager})
        return await self._manifest(_Request("PATCH", path, params, orjson.dumps(patch), MERGE))

    async def delete(self, resource: Resource, key: ObjectKey, uid: str = "") -> None:
        """Delete; owned objects follow in the background. No error if it is gone; Conflict if the uid differs."""
        options: Manifest = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
        if uid:
            options["preconditions"] = {"uid": uid}
        await self._call(_Request("DELETE", resource.path(key), body=orjson.dumps(options)), absent_ok=True)

    @asynccontextmanager
    async def stream(self, path: str, params: Mapping[str, str]) -> AsyncIterator[AsyncIterator[bytes]]:
        """The chunks of an open-ended answer, until its end or a silence; raises like a call, also when it breaks."""
        limits = self.limits
        within = aiohttp.ClientTimeout(
            total=limits.watch + limits.silence, sock_connect=limits.call, sock_read=limits.silence
        )
        request = _Request("GET", path, params)
        with _translated(request):
            async with self._answer(request, within) as response:
                yield _until_silence(response)

    async def _manifest(self, request: _Request) -> Manifest:
        found = await self._call(request)
        if not isinstance(found, dict):
            raise Unreachable(f"the API server's answer to {request} is not an object")
        return found

    async def _call(self, request: _Request, *, absent_ok: bool = False) -> Any:
        with _translated(request):
            async with self._answer(request, aiohttp.ClientTimeout(total=self.limits.call), absent_ok) as response:
                return orjson.loads(await _read(response) or b"null")

    @asynccontextmanager
    async def _answer(
        self, request: _Request, within: aiohttp.ClientTimeout, absent_ok: bool = False
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        response = await self._send_or_renew(request, within)
        try:
            if response.status >= 300 and not (absent_ok and response.status == 404):
                raise api_error(response.status, await _read(response), response.headers, str(request))
            yield response
        finally:
            response.close()

    async def _send_or_renew(self, request: _Request, within: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        sent = self.clock.monotonic()
        try:
            response = await self._send(request, within)
            if response.status != 401:
                return response
            response.close()
        except aiohttp.ClientSSLError:
            pass
        # read the credentials again, unless another task did so just before or since the request was sent
        async with self._renewing:
            if self._renewed < sent and self.clock.monotonic() - self._renewed >= RENEW_GAP_S:
                self._renewed = self.clock.monotonic()
                await self._credentials.renew()
        return await self._send(request, within)

    async def _send(self, request: _Request, within: aiohttp.ClientTimeout) -> aiohttp.ClientResponse:
        login = self._credentials
        return await self._session.request(
            request.method,
            login.server + request.path,
            params=request.params,
            data=request.body,
            headers={**login.headers(), **({"Content-Type": request.content} if request.body else {})},
            ssl=login.tls or True,
            server_hostname=login.server_name,
            proxy=login.proxy,
            timeout=within,
            allow_redirects=False,
        )


def key_of(manifest: Manifest) -> ObjectKey:
    metadata = manifest["metadata"]
    return ObjectKey(metadata.get("namespace") or "", metadata["name"])


@contextmanager
def _translated(request: _Request) -> Iterator[None]:
    try:
        yield
    except orjson.JSONDecodeError as error:
        raise Unreachable(f"the API server's answer to {request} is not JSON: {error}") from None
    except InvalidInput as error:
        raise Unreachable(f"{request} was not sent: {error}") from None
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
        words = str(error) or type(error).__name__
        raise Unreachable(f"the API server did not answer {request}: {words}") from None


async def _until_silence(response: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
    with suppress(aiohttp.SocketTimeoutError):
        async for chunk in response.content.iter_any():
            yield chunk


async def _read(response: aiohttp.ClientResponse) -> bytes:
    chunks: list[bytes] = []
    size = 0
    async for chunk in response.content.iter_any():
        size += len(chunk)
        if size > BODY_LIMIT:
            raise Unreachable(f"the API server's answer is larger than {BODY_LIMIT >> 20} MiB; it is not read")
        chunks.append(chunk)
    return b"".join(chunks)


def _filled(params: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in params.items() if value}

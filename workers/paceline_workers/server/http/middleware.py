"""The outermost layer: who is calling, once per request, and the request id on every answer whatever made it.

Unless the worker is anonymous, nothing but probes is reached without a valid internal token: of a gateway, or under
`/internal/` of anybody who is trusted.

A browser's page of another site is refused in any case: over HTTP it could ask, and over WebSocket it could read the
answers too. A page of this site names its own host; a name that somebody made to lead here is no name of loopback.
"""

from collections.abc import Mapping

from paceline_core.admin.middleware import host_name
from paceline_core.auth import TrustBundle
from paceline_core.config import is_loopback
from paceline_core.errors import Code, RequestError, error_response
from paceline_workers.server.http.caller import Caller, caller
from paceline_workers.server.http.exchange import App, Event, Receive, Reply, Scope, Send, declares_body, refuse_unread
from paceline_workers.server.http.websocket import refuse

_BODILESS = frozenset({"GET", "HEAD", "OPTIONS", "DELETE", "TRACE"})
_KINDS = frozenset({"http", "websocket"})
_STARTS = frozenset({"http.response.start", "websocket.accept", "websocket.http.response.start"})
PROBES = frozenset({"/healthz", "/readyz", "/metrics"})
_READS = frozenset({"GET", "HEAD"})


class CallerMiddleware:
    """Wraps the application; puts a Caller into `scope["caller"]`."""

    def __init__(self, app: App, trust: TrustBundle, *, anonymous: bool, probes: bool = False) -> None:
        self._app = app
        self._trust = trust
        self._anonymous = anonymous
        self._open = PROBES if probes else frozenset()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on. Raises what the application raises."""
        if scope["type"] not in _KINDS:
            await self._app(scope, receive, send)
            return
        scope["caller"] = known = caller(scope["headers"], self._trust.claims)
        name = (b"x-request-id", known.request_id.encode())

        async def named(event: Event) -> None:
            if event["type"] in _STARTS:
                event["headers"] = [*event.get("headers", ()), name]
            await send(event)

        refusal = self._refusal(scope, known) or _with_body(scope)
        if refusal is None:
            await self._app(scope, receive, named)
        elif scope["type"] == "websocket":
            await refuse(refusal, receive, named)
        else:
            await refuse_unread(Reply(named), receive, error_response(refusal, scope["path"]), {})

    def _refusal(self, scope: Scope, known: Caller) -> RequestError | None:
        if scope.get("method") not in _READS or scope["type"] == "websocket":
            words = _unauthorized(dict(scope["headers"]), anonymous=self._anonymous)
            if words:
                return RequestError(Code.INVALID_REQUEST, words, param="origin")
        if self._anonymous or known.gateway:
            return None
        path = scope["path"]
        if (known.trusted and path.startswith("/internal/")) or path in self._open:
            return None
        words = "This port is for gateways: bring a valid `x-paceline-internal-token` token, or ask a gateway instead."
        return RequestError(Code.INVALID_API_KEY, words)


def _with_body(scope: Scope) -> RequestError | None:
    if scope["type"] == "http" and scope["method"] in _BODILESS and declares_body(scope["headers"]):
        words = f"{scope['method']} {scope['path'][:128]} takes no body; leave it out."
        return RequestError(Code.INVALID_REQUEST, words)
    return None


def _unauthorized(headers: Mapping[bytes, bytes], *, anonymous: bool) -> str:
    """Why a browser's page may not ask; empty for its own site's, and for other clients, which name no origin."""
    origin, host = headers.get(b"origin", b""), headers.get(b"host", b"")
    if not origin:
        return ""
    if origin.partition(b"://")[2] != host or (anonymous and not is_loopback(host_name(host))):
        return "Pages of other sites may not ask; leave the header `origin` out."
    return ""

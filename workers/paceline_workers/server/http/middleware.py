"""The outermost layer: identifies the caller once per request, and adds the request id to every answer.

Unless the worker is anonymous, everything but probes requires a valid internal token: a gateway's, or under
`/internal/` that of any trusted caller.

It always refuses a page from another site in a browser: such a page could send requests over HTTP, and over WebSocket
also read the answers. A page of this site names its own host; a foreign name that resolves to here is not loopback.
"""

from collections.abc import Mapping

from paceline_core.admin.middleware import host_name
from paceline_core.auth import TrustBundle
from paceline_core.auth.internal_token import HEADER
from paceline_core.config import is_loopback
from paceline_core.errors import Code, RequestError, error_response
from paceline_workers.server.http.caller import caller
from paceline_workers.server.http.exchange import App, Receive, Reply, RequestIdHeader, Scope, Send, refuse_unread
from paceline_workers.server.http.websocket import refuse

_BODILESS = frozenset({"GET", "HEAD", "OPTIONS", "DELETE", "TRACE"})
PROBES = frozenset({"/healthz", "/readyz", "/metrics"})
_FOR_GATEWAYS = "This port is for gateways: bring a valid `x-paceline-internal-token` token, or ask a gateway instead."


class CallerMiddleware:
    """Wraps the application; puts a Caller into `scope["caller"]`."""

    def __init__(self, app: App, trust: TrustBundle, *, anonymous: bool, probes: bool = False) -> None:
        self._app = app
        self._trust = trust
        self._anonymous = anonymous
        self._open = PROBES if probes else frozenset()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on. Raises what the application raises."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        foreign, with_body = self._foreign(scope, headers), _with_body(scope, headers)
        claims = self._trust.claims(headers.get(HEADER.encode(), b"").decode("latin-1"))
        scope["caller"] = known = caller(headers, claims)
        send = RequestIdHeader(send, known.request_id).send
        allowed = (
            self._anonymous
            or known.gateway
            or (known.trusted and scope["path"].startswith("/internal/"))
            or scope["path"] in self._open
        )
        refusal = foreign or (None if allowed else RequestError(Code.INVALID_API_KEY, _FOR_GATEWAYS)) or with_body
        if refusal is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await refuse(refusal, receive, send)
        else:
            await refuse_unread(Reply(send), receive, error_response(refusal, scope["path"]), {})

    def _foreign(self, scope: Scope, headers: Mapping[bytes, bytes]) -> RequestError | None:
        """The refusal of a page from another site; clients other than browsers send no origin."""
        origin, host = headers.get(b"origin", b""), headers.get(b"host", b"")
        if not origin or (scope["type"] == "http" and scope["method"] in ("GET", "HEAD")):
            return None
        if origin.partition(b"://")[2] == host and not (self._anonymous and not is_loopback(host_name(host))):
            return None
        words = "Pages of other sites may not ask; leave the header `origin` out."
        return RequestError(Code.INVALID_REQUEST, words, param="origin")


def _with_body(scope: Scope, headers: Mapping[bytes, bytes]) -> RequestError | None:
    if scope["type"] == "websocket" or scope["method"] not in _BODILESS:
        return None
    if b"transfer-encoding" in headers or headers.get(b"content-length", b"0").strip(b"0"):
        words = f"{scope['method']} {scope['path'][:128]} takes no body; leave it out."
        return RequestError(Code.INVALID_REQUEST, words)
    return None

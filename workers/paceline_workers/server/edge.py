"""The outermost layer: who is calling, once per request, and the request id on every answer whatever made it."""

from paceline_core.auth import TrustFile
from paceline_core.errors import Code, RequestError, answer
from paceline_workers.server.asgi import App, Event, Receive, Reply, Scope, Send
from paceline_workers.server.body import declares_body
from paceline_workers.server.callers import caller
from paceline_workers.server.exchange import refuse_unread

_BODILESS = frozenset({"GET", "HEAD", "OPTIONS", "DELETE", "TRACE"})
_KINDS = frozenset({"http", "websocket"})
_STARTS = frozenset({"http.response.start", "websocket.accept", "websocket.http.response.start"})


class Edge:
    """Wraps the application; puts a Caller into `scope["caller"]`."""

    def __init__(self, app: App, trust: TrustFile) -> None:
        self._app = app
        self._trust = trust

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass one request on. Raises what the application raises."""
        if scope["type"] not in _KINDS:
            await self._app(scope, receive, send)
            return
        scope["caller"] = known = caller(scope["headers"], self._trust.hop)
        name = (b"x-request-id", known.request_id.encode())

        async def named(event: Event) -> None:
            if event["type"] in _STARTS:
                event["headers"] = [*event.get("headers", ()), name]
            await send(event)

        if scope["type"] == "http" and scope["method"] in _BODILESS and declares_body(scope["headers"]):
            words = f"{scope['method']} {scope['path'][:128]} takes no body; leave it out."
            refusal = answer(RequestError(Code.INVALID_REQUEST, words))
            await refuse_unread(Reply(named), receive, refusal, {})
            return
        await self._app(scope, receive, named)

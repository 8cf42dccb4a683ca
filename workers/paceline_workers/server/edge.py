"""The outermost layer: who is calling, once per request, and the request id on every answer whatever made it."""

from paceline_core.auth import TrustFile
from paceline_workers.server.asgi import App, Event, Receive, Scope, Send
from paceline_workers.server.callers import caller

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

        await self._app(scope, receive, named)

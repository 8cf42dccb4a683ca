"""How much body an admin port takes: LIMIT bytes, and what is beyond them never reaches the application.

Frameworks collect a body before they look at who sends it, so an endless one from a client without any right would
fill the memory of the process whose port it is. A body that is announced longer is refused by its head; of one that
is not announced the application hears that its client has left, and the client is told why.
"""

import asyncio
import contextlib

from paceline_core.admin_hosts import App, Receive, Scope, Send
from paceline_core.errors import Code, RequestError, error_response

LIMIT = 1 << 20
LINGER_S = 1.0
DROPPED_BODIES = 16
"""Bodies' worth that a refused client may still send."""


class BodyLimitMiddleware:
    """An ASGI application behind that bound."""

    def __init__(self, app: App, limit: int = LIMIT) -> None:
        self._app = app
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        announced = dict(scope.get("headers", ())).get(b"content-length", b"")
        if announced.isdigit() and int(announced) > self._limit:
            await self._refuse(receive, send)
            return
        body = _Counted(receive, self._limit)
        answered = False

        async def told(event: Scope) -> None:
            nonlocal answered
            if not body.over:
                answered = True
                await send(event)

        await self._app(scope, body.receive, told)
        if body.over and not answered:
            await self._refuse(receive, send)

    async def _refuse(self, receive: Receive, send: Send) -> None:
        """Answer, and read on for a moment: a close at once would reset the connection and take the answer with it."""
        words = f"The body is over the limit of {self._limit} bytes."
        spoken = error_response(RequestError(Code.REQUEST_TOO_LARGE, words))
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(spoken.body))]
        headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": spoken.status, "headers": headers})
        await send({"type": "http.response.body", "body": spoken.body, "more_body": True})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGER_S):
                await _drop(receive, DROPPED_BODIES * self._limit)
        await send({"type": "http.response.body", "body": b""})


async def _drop(receive: Receive, most: int) -> None:
    """Read a body's rest up to so many bytes."""
    while most > 0:
        event = await receive()
        most -= len(event.get("body", b""))
        if not event.get("more_body", False):
            return


class _Counted:
    """A body as far as an application receives it; `over`: the body was too long."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive = receive
        self._left = limit
        self.over = False

    async def receive(self) -> Scope:
        """The next event, a client's leaving in the place of what is too long."""
        event = await self._receive()
        self._left -= len(event.get("body", b""))
        self.over = self.over or self._left < 0
        return {"type": "http.disconnect"} if self.over else event

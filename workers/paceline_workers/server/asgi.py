"""ASGI's own types, and one answer written through them.

The generating routes and the load stream are plain ASGI: a token costs one `send`, with no response object between.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from paceline_core.errors import Code, ErrorResponse, RequestError

Event = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

WRITE_LIMIT_S = 30.0


class Reply:
    """One HTTP answer; a client that reads nothing for `write_limit_s` ends it. `started`: the status is out."""

    def __init__(self, send: Send, write_limit_s: float = WRITE_LIMIT_S) -> None:
        self._send = send
        self._write_limit_s = write_limit_s
        self.started = False

    async def start(self, status: int, headers: Mapping[str, str]) -> None:
        """Status and headers."""
        self.started = True
        encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": encoded})

    async def write(self, data: bytes, *, more: bool = True) -> None:
        """One write. Raises RequestError `client_closed` when the client does not take it in time."""
        try:
            async with asyncio.timeout(self._write_limit_s):
                await self._send({"type": "http.response.body", "body": data, "more_body": more})
        except TimeoutError:
            raise RequestError(
                Code.CLIENT_CLOSED, f"The client read nothing for {self._write_limit_s:.0f} s."
            ) from None

    async def whole(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """A complete answer."""
        await self.start(status, {**headers, "content-length": str(len(body))})
        await self.write(body, more=False)

    async def error(self, answer: ErrorResponse, headers: Mapping[str, str]) -> None:
        """A complete answer from the error table, with more headers."""
        await self.whole(answer.status, {**answer.headers, **headers}, answer.body)

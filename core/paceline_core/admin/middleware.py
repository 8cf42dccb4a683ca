"""Two checks in front of an admin port: the body's length and the Host header.

Frameworks collect a body before they check its sender, so an endless one from a client without credentials would fill
the process's memory. A body with a declared length beyond LIMIT is refused by its head. When a body without a declared
length exceeds it, the application is told that its client has left, and the client gets the error.

A page in a browser can use any host name, and have it resolve to 127.0.0.1 or a pod (DNS rebinding); the browser then
lets it read the port's answers. So a Host must be an address, `localhost`, a name without a dot, a Service's name
inside the cluster (`.svc`, `.svc.cluster.local`), or one of PACELINE_ADMIN_HOSTS (separated by commas). Browsers always
send a Host; a request without one is a probe.
"""

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from ipaddress import ip_address
from typing import Any

from paceline_core.errors import Code, RequestError, error_response

VARIABLE = "PACELINE_ADMIN_HOSTS"
_INSIDE = (".svc", ".svc.cluster.local", ".localhost")
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Scope]]
Send = Callable[[Scope], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


def named(environment: Mapping[str, str]) -> frozenset[str]:
    """Further names that the environment allows."""
    return frozenset(name.strip().lower() for name in environment.get(VARIABLE, "").split(",") if name.strip())


def host_name(host: bytes) -> str:
    """The name or address in a Host header, without its port, in lower case."""
    text = host.decode("latin-1").lower()
    return text[1:].partition("]")[0] if text.startswith("[") else text.partition(":")[0]


def is_own(host: bytes, further: frozenset[str] = frozenset()) -> bool:
    """Whether an admin port may be called by this Host header."""
    name = host_name(host).removesuffix(".")
    if "." not in name and ":" not in name:
        return True
    if name in further or name.endswith(_INSIDE):
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


class AllowedHostsMiddleware:
    def __init__(self, app: App, further: frozenset[str] | None = None) -> None:
        self._app = app
        self._further = named(os.environ) if further is None else further

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        hosts = [value for name, value in scope.get("headers", ()) if name == b"host"]
        if all(is_own(host, self._further) for host in hosts):
            await self._app(scope, receive, send)
            return
        name = hosts[0].decode("latin-1")[:128]
        words = f"This port is not called {name}; use its address, or add the name to {VARIABLE}."
        spoken = error_response(RequestError(Code.INVALID_REQUEST, words, param="host"))
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(spoken.body))]
        await send({"type": "http.response.start", "status": spoken.status, "headers": headers})
        await send({"type": "http.response.body", "body": spoken.body})


LIMIT = 1 << 20
LINGER_S = 1.0
DROPPED_BODIES = 16
"""How many bodies' worth of bytes a refused client may still send."""


class BodyLimitMiddleware:
    def __init__(self, app: App, limit: int = LIMIT) -> None:
        self._app = app
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        announced = dict(scope.get("headers", ())).get(b"content-length", b"")
        if announced.isdigit() and int(announced) > self._limit:
            await self._refuse(receive, send)
            return
        body = _Counted(receive, self._limit)
        answered = False

        async def send_unless_over(event: Scope) -> None:
            nonlocal answered
            if not body.over:
                answered = True
                await send(event)

        await self._app(scope, body.receive, send_unless_over)
        if body.over and not answered:
            await self._refuse(receive, send)

    async def _refuse(self, receive: Receive, send: Send) -> None:
        """Answer, and read for a moment: closing at once would reset the connection and lose the answer."""
        words = f"The body is over the limit of {self._limit} bytes."
        spoken = error_response(RequestError(Code.REQUEST_TOO_LARGE, words))
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(spoken.body))]
        headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": spoken.status, "headers": headers})
        await send({"type": "http.response.body", "body": spoken.body, "more_body": True})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGER_S):
                left, more = DROPPED_BODIES * self._limit, True
                while more and left > 0:
                    event = await receive()
                    left -= len(event.get("body", b""))
                    more = event.get("more_body", False)
        await send({"type": "http.response.body", "body": b""})


class _Counted:
    """A body as an application receives it; `over`: the body was too long."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive = receive
        self._left = limit
        self.over = False

    async def receive(self) -> Scope:
        """The next event; the client's disconnect in place of an event beyond the limit."""
        event = await self._receive()
        self._left -= len(event.get("body", b""))
        self.over = self.over or self._left < 0
        return {"type": "http.disconnect"} if self.over else event

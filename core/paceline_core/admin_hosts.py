"""By which names an admin port may be called: none that a stranger's name server could point at it.

A page in a browser can name any host, and have that name resolve to 127.0.0.1 or a pod (DNS rebinding); the browser
then lets it read what the port answers. So a Host must be an address, `localhost`, a name without a dot, a name of a
Service inside the cluster (`.svc`, `.svc.cluster.local`), or one of PACELINE_ADMIN_HOSTS (separated by commas).
Browsers always send a Host; a request without one is a probe's.
"""

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
    """Whether a Host header is one by which an admin port is called."""
    name = host_name(host).removesuffix(".")
    if "." not in name and ":" not in name:
        return True
    return name in further or name.endswith(_INSIDE) or _is_address(name)


class AllowedHostsMiddleware:
    """An ASGI application behind that check."""

    def __init__(self, app: App, further: frozenset[str] | None = None) -> None:
        self._app = app
        self._further = named(os.environ) if further is None else further

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
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


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True

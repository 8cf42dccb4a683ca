"""Read a request's body, bounded in size and time."""

import asyncio
from collections.abc import Iterable

from paceline_core.errors import Code, RequestError
from paceline_workers.server.asgi import Receive

READ_LIMIT_S = 30.0


async def read_body(
    headers: Iterable[tuple[bytes, bytes]], receive: Receive, limit: int, seconds: float = READ_LIMIT_S
) -> bytes:
    """The whole body. Raises RequestError: `request_too_large` as soon as that is known, `request_timeout`, or
    `client_closed`."""
    declared = dict(headers).get(b"content-length", b"")
    if declared.isdigit() and int(declared) > limit:
        raise _too_large(limit)
    try:
        async with asyncio.timeout(seconds):
            return await _read(receive, limit)
    except TimeoutError:
        raise RequestError(Code.REQUEST_TIMEOUT, f"The body did not arrive within {seconds:.0f} s.") from None


async def _read(receive: Receive, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise RequestError(Code.CLIENT_CLOSED, "The client left before its request was complete.")
        parts.append(event.get("body", b""))
        size += len(parts[-1])
        if size > limit:
            raise _too_large(limit)
        if not event.get("more_body", False):
            return b"".join(parts)


async def discard(receive: Receive, seconds: float) -> None:
    """Read what a client still sends and forget it, until its body or `seconds` are over."""
    try:
        async with asyncio.timeout(seconds):
            while (event := await receive())["type"] == "http.request" and event.get("more_body", False):
                pass
    except TimeoutError:
        return


def _too_large(limit: int) -> RequestError:
    return RequestError(Code.REQUEST_TOO_LARGE, f"The body is over the limit of {limit} bytes.")

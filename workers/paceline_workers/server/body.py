"""Read a request's body, bounded in size and time, and with all others in memory."""

import asyncio
from collections.abc import Iterable

from paceline_core.errors import Code, RequestError
from paceline_workers.server.asgi import Receive

READ_LIMIT_S = 30.0
RETRY_AFTER_S = 1.0
BODIES = 16
"""Bodies of the largest size that a worker holds at once."""
LIMIT = BODIES * (8 << 20)


class BodyMemory:
    """Bytes of bodies and messages that are held at once on this worker, at most `limit`; `held` are now."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self.held = 0

    def hold(self, size: int) -> None:
        """Count so many more. Raises RequestError `queue_full`, and counts none."""
        if self.held + size > self.limit:
            words = f"This worker holds {self.limit} bytes of requests at a time; try again shortly."
            raise RequestError(Code.QUEUE_FULL, words, retry_after=RETRY_AFTER_S)
        self.held += size

    def release(self, size: int) -> None:
        """Count so many bytes less."""
        self.held -= size


class Holding:
    """The share of one request or connection; a body has at most `most` bytes."""

    def __init__(self, memory: BodyMemory, most: int) -> None:
        self._memory = memory
        self.most = most
        self.size = 0

    def add(self, size: int) -> None:
        """Count so many bytes more. Raises RequestError `queue_full`."""
        self._memory.hold(size)
        self.size += size

    def become(self, size: int) -> None:
        """Count exactly so many bytes. Raises RequestError `queue_full`."""
        if size > self.size:
            self.add(size - self.size)
        else:
            self.release(self.size - size)

    def release(self, size: int | None = None) -> None:
        """Count so many bytes less, by default all."""
        size = self.size if size is None else min(size, self.size)
        self._memory.release(size)
        self.size -= size


async def read_body(
    headers: Iterable[tuple[bytes, bytes]], receive: Receive, holding: Holding, seconds: float = READ_LIMIT_S
) -> bytes:
    """The whole body. Raises RequestError: `request_too_large` as soon as that is known, `request_timeout`,
    `queue_full` where all together would be too much, or `client_closed`."""
    declared = dict(headers).get(b"content-length", b"")
    if declared.isdigit() and int(declared[:20]) > holding.most:
        raise _too_large(holding.most)
    try:
        async with asyncio.timeout(seconds):
            return await _read(receive, holding)
    except TimeoutError:
        raise RequestError(Code.REQUEST_TIMEOUT, f"The body did not arrive within {seconds:.0f} s.") from None


async def _read(receive: Receive, holding: Holding) -> bytes:
    """In one bytearray: a list of parts would weigh 30 times a body that comes in parts of two bytes."""
    body = bytearray()
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            raise RequestError(Code.CLIENT_CLOSED, "The client left before its request was complete.")
        part = event.get("body", b"")
        if len(body) + len(part) > holding.most:
            raise _too_large(holding.most)
        holding.add(len(part))
        body += part
        if not event.get("more_body", False):
            return bytes(body)


def declares_body(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Return whether a request's head announces a body."""
    values = dict(headers)
    return b"transfer-encoding" in values or bool(values.get(b"content-length", b"0").strip(b"0"))


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

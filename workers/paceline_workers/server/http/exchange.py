"""One HTTP request and its answer: ASGI's types, and a body that is bounded in size, time and memory.

The generating routes and the load stream are plain ASGI: a token costs one `send`, with no response object between.

Long bodies take turns on the event loop: parsing and validating 8 MB takes tens of ms without a break, and bodies that
arrive together would otherwise be parsed back to back, while every stream waits for all of them.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from paceline_core.errors import Code, ErrorResponse, RequestError
from paceline_core.process import cancel
from paceline_workers.server.http.caller import Caller
from paceline_workers.server.text.tokenizer import INLINE_CHARACTERS

Event = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

WRITE_LIMIT_S = READ_LIMIT_S = 30.0
LINGER_S = 2.0
_STARTS = frozenset({"http.response.start", "websocket.accept", "websocket.http.response.start"})
RETRY_AFTER_S = 1.0
BODIES = 16
"""How many bodies of the largest size a worker holds at once."""
LIMIT = BODIES * (8 << 20)
LONG = 64 << 10
"""A body of this many bytes or more takes a turn of the loop: parsing it takes some 0.5 ms."""
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class RequestIdHeader:
    """Adds the request's id to every answer."""

    to: Send
    request_id: str

    async def send(self, event: Event) -> None:
        if event["type"] in _STARTS:
            event["headers"] = [*event.get("headers", ()), (b"x-request-id", self.request_id.encode())]
        await self.to(event)


@dataclass(slots=True)
class Reply:
    """One HTTP answer; ends when the client reads nothing for `write_limit_s`. `started`: the status has been sent."""

    send: Send
    write_limit_s: float = WRITE_LIMIT_S
    started: bool = False

    async def start(self, status: int, headers: Mapping[str, str]) -> None:
        self.started = True
        encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
        await self.send({"type": "http.response.start", "status": status, "headers": encoded})

    async def write(self, data: bytes, *, more: bool = True) -> None:
        """Write once. Raises RequestError `client_closed` if the client does not accept it in time."""
        try:
            async with asyncio.timeout(self.write_limit_s):
                await self.send({"type": "http.response.body", "body": data, "more_body": more})
        except TimeoutError:
            words = f"The client read nothing for {self.write_limit_s:.0f} s."
            raise RequestError(Code.CLIENT_CLOSED, words) from None

    async def whole(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        await self.start(status, {**headers, "content-length": str(len(body))})
        await self.write(body, more=False)


@dataclass(slots=True)
class BodyMemory:
    """Counts the bytes of all bodies and messages that this worker holds: `held`, at most `limit`."""

    limit: int = LIMIT
    held: int = 0

    def hold(self, size: int) -> None:
        """Count `size` more bytes. Raises RequestError `queue_full`, without counting them."""
        if self.held + size > self.limit:
            words = f"This worker holds {self.limit} bytes of requests at a time; try again shortly."
            raise RequestError(Code.QUEUE_FULL, words, retry_after=RETRY_AFTER_S)
        self.held += size

    def release(self, size: int) -> None:
        self.held -= size


@dataclass(slots=True)
class Holding:
    """The bytes in `memory` of one request or connection; a body has at most `most` bytes."""

    memory: BodyMemory
    most: int
    size: int = 0

    def add(self, size: int) -> None:
        """Count `size` more bytes. Raises RequestError `queue_full`."""
        self.memory.hold(size)
        self.size += size

    def become(self, size: int) -> None:
        """Count exactly `size` bytes. Raises RequestError `queue_full`."""
        if size > self.size:
            self.add(size - self.size)
        else:
            self.release(self.size - size)

    def release(self, size: int | None = None) -> None:
        """Count `size` bytes less, by default all of them."""
        size = self.size if size is None else min(size, self.size)
        self.memory.release(size)
        self.size -= size


async def read_body(
    headers: Iterable[tuple[bytes, bytes]], receive: Receive, holding: Holding, seconds: float = READ_LIMIT_S
) -> bytes:
    """The whole body. Raises RequestError: `request_too_large` as early as possible, `request_timeout`, `queue_full` if
    all bodies together would be too large, or `client_closed`."""
    too_large = f"The body is over the limit of {holding.most} bytes."
    declared = dict(headers).get(b"content-length", b"")
    if declared.isdigit() and int(declared[:20]) > holding.most:
        raise RequestError(Code.REQUEST_TOO_LARGE, too_large)
    body = bytearray()  # a list would take 30 times the memory for a body that arrives in parts of two bytes
    try:
        async with asyncio.timeout(seconds):
            while True:
                event = await receive()
                if event["type"] == "http.disconnect":
                    raise RequestError(Code.CLIENT_CLOSED, "The client left before its request was complete.")
                part = event.get("body", b"")
                if len(body) + len(part) > holding.most:
                    raise RequestError(Code.REQUEST_TOO_LARGE, too_large)
                holding.add(len(part))
                body += part
                if not event.get("more_body", False):
                    return bytes(body)
    except TimeoutError:
        raise RequestError(Code.REQUEST_TIMEOUT, f"The body did not arrive within {seconds:.0f} s.") from None


class LoopTurns:
    """The turns of one worker's event loop, in order of arrival.

    A body counts in `BodyMemory` while it waits, whose limit bounds the queue. Known hole: a body takes no turn for the
    work after its first wait (for the tokenizer).
    """

    def __init__(self) -> None:
        self._line: deque[asyncio.Future[None]] = deque()
        self._taken = False

    async def within(self, work: Coroutine[Any, Any, R]) -> R:
        """Await `work`, started in a turn of its own, and return its result."""
        try:
            await self.take()
            return await work
        finally:
            work.close()

    async def take(self) -> None:
        """Return in a turn of the loop that no other long body has."""
        loop = asyncio.get_running_loop()
        if self._taken:
            turn = loop.create_future()
            self._line.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if not turn.cancelled():  # the turn was already this body's
                    loop.call_soon(self._next)
                raise
        self._taken = True
        loop.call_soon(self._next)

    def _next(self) -> None:
        """Give the turn to the first body that still waits."""
        while self._line:
            turn = self._line.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._taken = False


class ResponseStream(Protocol):
    """Receives an answer. Each write is bounded in time: RequestError `client_closed` if the client does not read."""

    started: bool

    async def start(self, status: int, headers: Mapping[str, str]) -> None:
        """Begin an answer of several writes."""

    async def write(self, data: bytes, *, more: bool = True) -> None:
        """Write server-sent events."""

    async def whole(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Write a complete answer."""


class RequestExchange(Protocol):
    """One request and its answer, over HTTP or WebSocket."""

    @property
    def caller(self) -> Caller: ...

    @property
    def reply(self) -> ResponseStream: ...

    @property
    def path(self) -> str: ...

    @property
    def movable(self) -> bool:
        """Whether the caller can continue a stream at another worker."""

    async def body(self) -> bytes:
        """The body. Raises RequestError if it is too large, too slow or cut off."""

    def release(self) -> None:
        """The body is no longer needed."""

    async def gone(self) -> None:
        """Return when the client has left; call it after `body`."""

    async def refuse(self, refusal: ErrorResponse, headers: Mapping[str, str], *, unread: bool = False) -> None:
        """Write a complete answer from the error table; `unread`: the body has not been read."""


async def understood(exchange: RequestExchange, turns: LoopTurns, make: Callable[[bytes], Coroutine[Any, Any, R]]) -> R:
    """The result of `make` for the body, which it then releases. A client that leaves cancels it, unless the body is so
    short that `make` is done before. A long body takes a turn of the loop. Raises RequestError.
    """
    body = await exchange.body()
    try:
        if len(body) <= INLINE_CHARACTERS:
            return await make(body)
        work = turns.within(make(body)) if len(body) > LONG else make(body)
        task, gone = asyncio.create_task(work), asyncio.create_task(exchange.gone())
        try:
            await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise RequestError(Code.CLIENT_CLOSED, "The client left.")
            return task.result()
        finally:
            await cancel(task, gone)
    finally:
        exchange.release()


@dataclass(frozen=True, slots=True)
class HttpExchange:
    """An ASGI request."""

    path: str
    headers: Iterable[tuple[bytes, bytes]]
    receive: Receive
    holding: Holding
    caller: Caller
    movable: bool
    reply: Reply

    async def body(self) -> bytes:
        return await read_body(self.headers, self.receive, self.holding)

    def release(self) -> None:
        self.holding.release()

    async def gone(self) -> None:
        await gone(self.receive)

    async def refuse(self, refusal: ErrorResponse, headers: Mapping[str, str], *, unread: bool = False) -> None:
        """Status and error object. Reads on in an unread body for a while: closing at once would lose the answer."""
        if unread:
            await refuse_unread(self.reply, self.receive, refusal, headers)
        else:
            await self.reply.whole(refusal.status, {**refusal.headers, **headers}, refusal.body)


async def gone(receive: Receive) -> None:
    """Return when the connection closes."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def refuse_unread(reply: Reply, receive: Receive, refusal: ErrorResponse, headers: Mapping[str, str]) -> None:
    """Refuse a request without reading its body: discard what arrives of it for a while, then end the connection."""
    length = {"content-length": str(len(refusal.body)), "connection": "close"}
    await reply.start(refusal.status, {**refusal.headers, **headers, **length})
    await reply.write(refusal.body)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LINGER_S):
            while (event := await receive())["type"] == "http.request" and event.get("more_body", False):
                pass
    await reply.write(b"", more=False)

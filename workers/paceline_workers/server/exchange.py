"""One request and its way back, whatever carries them: what the routes need of a connection."""

from collections.abc import Mapping
from typing import Protocol

from paceline_core.errors import ErrorResponse
from paceline_workers.server.asgi import Receive, Reply, Scope, Send
from paceline_workers.server.body import Holding, discard, read_body
from paceline_workers.server.callers import Caller

LINGER_S = 2.0


class ResponseStream(Protocol):
    """Where an answer goes. Each write is bounded in time: RequestError `client_closed` when nobody takes it."""

    started: bool

    async def start(self, status: int, headers: Mapping[str, str]) -> None:
        """An answer of several writes begins."""
        ...

    async def write(self, data: bytes, *, more: bool = True) -> None:
        """One write of server-sent events."""
        ...

    async def whole(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """A complete answer."""
        ...


class RequestExchange(Protocol):
    """One request: who asks, what, and the way back."""

    @property
    def caller(self) -> Caller:
        """Who asks."""
        ...

    @property
    def reply(self) -> ResponseStream:
        """The way back."""
        ...

    @property
    def path(self) -> str:
        """The route."""
        ...

    @property
    def movable(self) -> bool:
        """Who asks can have the rest of a stream from another worker."""
        ...

    async def body(self) -> bytes:
        """What is asked. Raises RequestError when it is too large, too slow or cut off."""
        ...

    def release(self) -> None:
        """The body is not needed any more."""
        ...

    async def gone(self) -> None:
        """Return once the client has left; to be called after `body`."""
        ...

    async def refuse(self, refusal: ErrorResponse, headers: Mapping[str, str], *, unread: bool = False) -> None:
        """A complete answer from the error table; `unread`: the body has not been read."""
        ...


class HttpExchange:
    """An ASGI request, whose caller stands in `scope["caller"]`."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, *, holding: Holding, write_limit_s: float) -> None:
        self._headers = scope["headers"]
        self.path: str = scope["path"]
        self._receive = receive
        self._holding = holding
        self.caller: Caller = scope["caller"]
        self.reply = Reply(send, write_limit_s)
        self.movable = self.caller.trusted

    async def body(self) -> bytes:
        """The request's body."""
        return await read_body(self._headers, self._receive, self._holding)

    def release(self) -> None:
        """The body counts no more."""
        self._holding.release()

    async def gone(self) -> None:
        """Return when the connection closes."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def refuse(self, refusal: ErrorResponse, headers: Mapping[str, str], *, unread: bool = False) -> None:
        """Status and error object. An unread body passes for a while: a close at once would take the answer with it."""
        if not unread:
            await self.reply.error(refusal, headers)
            return
        await refuse_unread(self.reply, self._receive, refusal, headers)


async def refuse_unread(reply: Reply, receive: Receive, refusal: ErrorResponse, headers: Mapping[str, str]) -> None:
    """Refuse what has a body that is not read, and end the connection."""
    length = {"content-length": str(len(refusal.body)), "connection": "close"}
    await reply.start(refusal.status, {**refusal.headers, **headers, **length})
    await reply.write(refusal.body)
    await discard(receive, LINGER_S)
    await reply.write(b"", more=False)

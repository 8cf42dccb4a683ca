"""The generating routes over WebSocket: each message in is a request's body, each message out an event's payload.

A stream consists of the same JSON texts as server-sent events and of `[DONE]`, each as a message; a whole answer or a
refusal is one message. A connection's requests are answered one after the other, so a slow reader delays only itself;
each write has the same limit as over HTTP. Closing the connection ends the request, as it does over HTTP.

Bounds: a message has at most `body_limit` bytes (uvicorn) and counts as a body does (close code 1013 if all together
are too large); frames are counted (`websocket_protocol`); WAITING messages may wait, and a connection may be idle for
IDLE_S. A client that sends more gets answers to the running and waiting messages; then the connection closes.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Mapping
from dataclasses import replace

from paceline_core.errors import Code, ErrorResponse, RequestError, error_response
from paceline_core.process import cancel
from paceline_workers.server.http.caller import Caller
from paceline_workers.server.http.exchange import Holding, Receive, Scope, Send
from paceline_workers.server.request_handler import Serve, ServerDeps, handle_request

WAITING = 1
IDLE_S = 75.0
LINGER_S = 2.0
NORMAL, POLICY, RESTART, BUSY = 1000, 1008, 1012, 1013


class SocketRoute:
    """One generating route as an ASGI application for WebSocket; `scope["caller"]` holds the caller."""

    def __init__(self, parts: ServerDeps, serve: Serve, idle_s: float = IDLE_S) -> None:
        self._parts = parts
        self._serve = serve
        self._idle_s = idle_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer message after message until the connection ends."""
        await receive()
        await send({"type": "websocket.accept"})
        inbox = _Inbox(receive, Holding(self._parts.bodies, self._parts.body_limit))
        reader = asyncio.create_task(inbox.fill())
        try:
            code, reason = await self._converse(scope["caller"], inbox, send)
        finally:
            await cancel(reader)
            inbox.holding.release()
        if not inbox.left:
            with contextlib.suppress(OSError):
                await send({"type": "websocket.close", "code": code, "reason": reason})

    async def _converse(self, caller: Caller, inbox: "_Inbox", send: Send) -> tuple[int, str]:
        """Answers messages; returns the code and the reason to close with."""
        while (message := await inbox.next(self._idle_s)) is not None:
            exchange = _SocketExchange(caller, message, inbox, _SocketReply(send, self._parts.write_limit_s))
            await handle_request(self._parts, exchange, self._serve)
            if self._parts.gate.draining:
                return RESTART, "the worker is shutting down"
            if exchange.reply.stuck:
                return POLICY, f"nothing was read for {self._parts.write_limit_s:.0f} s"
        if inbox.full:
            return BUSY, inbox.full
        if inbox.overrun:
            return POLICY, f"more than {WAITING} message waited; send the next when an answer has ended"
        return NORMAL, f"idle for {self._idle_s:.0f} s"


async def refuse(error: RequestError, receive: Receive, send: Send) -> None:
    """Answer a handshake with an error object, and wait a moment for the connection to end."""
    response = error_response(error)
    headers = [(name.encode(), value.encode()) for name, value in response.headers.items()]
    await send({"type": "websocket.http.response.start", "status": response.status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": response.body})
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LINGER_S):
            for _ in range(2):  # uvicorn reports that it closes, then that it has closed; earlier exits log an error
                while (await receive())["type"] != "websocket.disconnect":
                    pass


class _Inbox:
    """The messages of one connection, read as they arrive so that its end is noticed at once.

    `full`: the error for a message that did not fit into memory.
    """

    def __init__(self, receive: Receive, holding: Holding) -> None:
        self._receive = receive
        self.holding = holding
        self._answered = 0
        self.full = ""
        self._messages: deque[bytes] = deque()
        self._answering = False
        self._wake = asyncio.Event()
        self.ended = asyncio.Event()
        self.left = self.overrun = False

    async def fill(self) -> None:
        """Read until the client leaves; after more messages than may wait, read no further ones."""
        while not self.left:
            event = await self._receive()
            if event["type"] == "websocket.disconnect":
                self.left = True
                self.ended.set()
            elif self.overrun or len(self._messages) >= WAITING + (not self._answering):
                self.overrun = True
            else:
                message = event.get("bytes") or (event.get("text") or "").encode()
                try:
                    self.holding.add(len(message))
                    self._messages.append(message)
                except RequestError as error:
                    self.overrun, self.full = True, error.message
            self._wake.set()

    def release(self) -> None:
        """Stop counting the message that has been answered."""
        self.holding.release(self._answered)
        self._answered = 0

    async def next(self, seconds: float) -> bytes | None:
        """The next message; None if the client has left or sent too many, or after `seconds` without one."""
        self._answering = False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not (self._messages or self.left or self.overrun):
                    self._wake.clear()
                    await self._wake.wait()
        if self.left or not self._messages:
            return None
        self._answering = True
        message = self._messages.popleft()
        self._answered = len(message)
        return message


class _SocketReply:
    """Writes events as messages. `stuck`: the client accepted nothing within the write limit."""

    def __init__(self, send: Send, write_limit_s: float) -> None:
        self._send = send
        self._write_limit_s = write_limit_s
        self.started = self.stuck = False

    async def start(self, status: int, headers: Mapping[str, str]) -> None:  # noqa: ARG002 - messages have neither
        self.started = True

    async def write(self, data: bytes, *, more: bool = True) -> None:  # noqa: ARG002 - `[DONE]` says it
        """Write a message for each event; comments are left out."""
        for line in data.split(b"\n"):
            if line.startswith(b"data: "):
                await self._message(line.removeprefix(b"data: "))

    async def whole(self, status: int, headers: Mapping[str, str], body: bytes) -> None:  # noqa: ARG002 - as above
        self.started = True
        await self._message(body)

    async def _message(self, payload: bytes) -> None:
        try:
            async with asyncio.timeout(self._write_limit_s):
                await self._send({"type": "websocket.send", "text": payload.decode()})
        except TimeoutError:
            self.stuck = True
            words = f"The client read nothing for {self._write_limit_s:.0f} s."
            raise RequestError(Code.CLIENT_CLOSED, words) from None
        except OSError:
            raise RequestError(Code.CLIENT_CLOSED, "The client left.") from None


class _SocketExchange:
    """One message and its answer. Headers that describe one prompt do not apply to the messages of a connection."""

    movable = False
    path = ""

    def __init__(self, caller: Caller, message: bytes, inbox: _Inbox, reply: _SocketReply) -> None:
        self._message = message
        self._inbox = inbox
        self.caller = replace(caller, resume=0, seed=None, prefix=None)
        self.reply = reply
        self.release = inbox.release

    async def body(self) -> bytes:
        return self._message

    async def gone(self) -> None:
        await self._inbox.ended.wait()

    async def refuse(self, refusal: ErrorResponse, headers: Mapping[str, str], *, unread: bool = False) -> None:  # noqa: ARG002 - a message has neither
        await self.reply.whole(refusal.status, headers, refusal.body)

"""Connections to workers: the most recently used one is reused; idle ones are closed before the worker closes them.

A connection sends a request, passes its response to a receiver, and is kept for the next one if framing allows.
Invariant: every exchange ends in exactly one `end` or `lost`, except one that its owner aborted: it ends in neither.
"""

import asyncio
import socket
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import Protocol, cast

import httptools

from paceline_core.process import cancel
from paceline_gateway.config import HttpLimits
from paceline_gateway.http.message import Headers

Address = tuple[str, int]
IDLE_LIMIT = 64
HEAD_LIMIT = 64 << 10


class DisconnectReason(StrEnum):
    """How an exchange broke."""

    REFUSED = "refused"
    """The connection was not made; the worker has seen nothing of the request."""
    STALE = "stale"
    """A kept connection was closed just as it was reused: an ordinary race, not the worker's fault."""
    CLOSED = "closed"
    """The connection ended before the response did."""
    INVALID = "invalid"
    """The bytes that came back are not HTTP."""


class Receiver(Protocol):
    """Gets a response: names of `headers` in lower case, `data` at most once per packet; `last`: `end` follows."""

    def head(self, status: int, headers: Headers) -> None: ...

    def data(self, data: bytes, last: bool) -> None: ...

    def end(self) -> None: ...

    def lost(self, loss: DisconnectReason) -> None:
        """The rest of the response will not come."""
        ...


class UpstreamExchange:
    """A request under way. Its methods work at any time: before the connection is made, and after the end.

    `task` makes the connection if none was kept.
    """

    __slots__ = ("_paused", "_receiver", "_upstream", "aborted", "task")

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._upstream: UpstreamConnection | None = None
        self._paused = False
        self.task: asyncio.Task[None] | None = None
        self.aborted = False

    def abort(self) -> None:
        """Give up: the worker sees a closed connection, the receiver gets no further call."""
        self.aborted = True
        if self.task is not None:
            self.task.cancel()
        if self._upstream is not None and self._upstream.receiver is self._receiver:  # else it serves another exchange
            self._upstream.abort()

    def pause(self, paused: bool) -> None:
        """Stop or resume reading the response."""
        self._paused = paused
        if self._upstream is not None and self._upstream.receiver is self._receiver:
            self._upstream.pause(paused)

    def use(self, upstream: "UpstreamConnection", request: list[bytes]) -> None:
        """A connection is available: send the request."""
        self._upstream = upstream
        upstream.send(request, self._receiver)
        if self._paused:
            upstream.pause(True)


class ConnectionPool:
    """Keep-alive connections by address."""

    def __init__(self, limits: HttpLimits, now: Callable[[], float]) -> None:
        self._limits = limits
        self._now = now
        self._idle: dict[Address, list[UpstreamConnection]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def send(self, address: Address, request: list[bytes], receiver: Receiver) -> UpstreamExchange:
        """Send a request over a kept connection, or over a new one."""
        exchange = UpstreamExchange(receiver)
        idle = self._idle.get(address)
        while idle:
            upstream = idle.pop()
            if upstream.open:
                exchange.use(upstream, request)
                return exchange
        task = asyncio.get_running_loop().create_task(self._connect(address, request, receiver, exchange))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        exchange.task = task
        return exchange

    def sweep(self) -> None:
        """Close what has been idle for too long; call it a few times a second."""
        oldest = self._now() - self._limits.upstream_keepalive_timeout_s
        for address in list(self._idle):
            for upstream in [u for u in self._idle[address] if u.idle_since < oldest]:
                self._idle[address].remove(upstream)
                upstream.abort()
            if not self._idle[address]:
                del self._idle[address]

    async def close(self) -> None:
        """Close every idle connection and stop connecting; exchanges under way end by themselves."""
        for upstream in [u for idle in self._idle.values() for u in idle]:
            upstream.abort()
        self._idle.clear()
        await cancel(*self._tasks)

    async def _connect(
        self, address: Address, request: list[bytes], receiver: Receiver, exchange: UpstreamExchange
    ) -> None:
        upstream = UpstreamConnection(partial(self._keep, address), partial(self._drop, address))
        try:
            async with asyncio.timeout(self._limits.connect_s):
                await asyncio.get_running_loop().create_connection(lambda: upstream, *address)
        except asyncio.CancelledError:
            upstream.abort()
            raise
        except OSError:  # includes TimeoutError
            upstream.abort()
            if not exchange.aborted:
                receiver.lost(DisconnectReason.REFUSED)
            return
        exchange.use(upstream, request)

    def _keep(self, address: Address, upstream: "UpstreamConnection") -> None:
        idle = self._idle.setdefault(address, [])
        if len(idle) >= IDLE_LIMIT:
            upstream.abort()
            return
        upstream.idle_since = self._now()
        idle.append(upstream)

    def _drop(self, address: Address, upstream: "UpstreamConnection") -> None:
        idle = self._idle.get(address)
        if idle and upstream in idle:
            idle.remove(upstream)


class UpstreamConnection(asyncio.Protocol):
    """`on_idle` takes the connection back after a response, `on_closed` is called at its end.

    `_complete`: a whole response has come. `receiver` gets the response under way, if there is one.
    """

    _complete: bool
    _headed: bool
    _keep: bool
    _broken: bool
    _until_close: bool
    _head_size: int

    def __init__(
        self, on_idle: Callable[["UpstreamConnection"], None], on_closed: Callable[["UpstreamConnection"], None]
    ) -> None:
        self._on_idle = on_idle
        self._on_closed = on_closed
        self._transport: asyncio.Transport | None = None
        self.receiver: Receiver | None = None
        self._used = False
        self._headers: Headers = {}
        self._body: list[bytes] = []
        self.on_body = self._body.append
        self._parser = httptools.HttpResponseParser(self)
        self.idle_since = 0.0
        self._clear()

    @property
    def open(self) -> bool:
        """Whether a request can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast("asyncio.Transport", transport)  # uvloop's transport only has its methods
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, request: list[bytes], receiver: Receiver) -> None:
        self.receiver = receiver
        self._clear()
        if self._transport is None:
            self._lose(DisconnectReason.STALE if self._used else DisconnectReason.CLOSED)
        else:
            self._transport.writelines(request)

    def pause(self, paused: bool) -> None:
        """Stop reading while the receiver is slow, or resume."""
        if self._transport is not None:
            self._transport.pause_reading() if paused else self._transport.resume_reading()

    def abort(self) -> None:
        """Close at once, so that the worker stops. The receiver gets no further call."""
        self.receiver = None
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        receiver = self.receiver
        if receiver is None:
            self.abort()
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._broken = True
        if not self._headed:
            self._head_size += len(data)
            self._broken = self._broken or self._head_size > HEAD_LIMIT
            if self._status >= 200:
                self._headed = True
                receiver.head(self._status, self._headers)
        if self._body and self._headed and self.receiver is not None:
            piece = b"".join(self._body)
            self._body.clear()
            receiver.data(piece, self._complete)
        if self._complete and self.receiver is not None:
            self._finish()
        elif self._broken:
            self._lose(DisconnectReason.INVALID)

    def connection_lost(self, _error: Exception | None) -> None:
        """asyncio: the connection is closed; that ends a response without a length."""
        self._transport = None
        self._on_closed(self)
        if self.receiver is None:
            return
        if self._headed and self._until_close and _error is None:
            self._finish()
        else:
            self._lose(DisconnectReason.STALE if self._used and not self._headed else DisconnectReason.CLOSED)

    def on_message_begin(self) -> None:
        """httptools: a response starts; without a request it is not parsed, and the connection is unusable."""
        if self._complete:
            raise ValueError

    def on_header(self, name: bytes, value: bytes) -> None:
        """httptools: one header, or one trailer, which is ignored."""
        if not self._status:
            name = name.lower()
            if name == b"transfer-encoding" and name in self._headers:
                self._broken = True
            self._headers[name] = value.strip()

    def on_headers_complete(self) -> None:
        self._status = self._parser.get_status_code()
        self._broken = self._broken or self._status < 100
        self._until_close = b"transfer-encoding" not in self._headers and b"content-length" not in self._headers

    def on_message_complete(self) -> None:
        """httptools: the response is complete, or was only an interim one."""
        if self._status < 200:
            self._headers, self._status = {}, 0
        elif not self._broken:
            self._complete, self._keep = True, self._parser.should_keep_alive()

    def _clear(self) -> None:
        self._headers = {}
        self._body.clear()
        self._status = self._head_size = 0
        self._headed = self._complete = self._keep = self._broken = self._until_close = False

    def _finish(self) -> None:
        receiver, self.receiver, transport = self.receiver, None, self._transport
        keep = self._keep and not self._broken and not self._until_close
        if transport is not None and keep and not transport.is_closing():
            self._used = True
            transport.resume_reading()
            self._on_idle(self)
        elif transport is not None:
            transport.close()
        if receiver is not None:
            receiver.end()

    def _lose(self, loss: DisconnectReason) -> None:
        receiver, self.receiver = self.receiver, None
        if self._transport is not None:
            self._transport.abort()
        if receiver is not None:
            receiver.lost(loss)

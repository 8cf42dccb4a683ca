"""One connection to a worker: a request out, its response to a receiver, kept for the next one if framing allows.

Invariant: every exchange ends in exactly one `end` or `lost`, unless its owner aborted it; then in neither.
"""

import asyncio
import socket
from collections.abc import Callable
from enum import StrEnum
from typing import Protocol, cast

import httptools

from paceline_gateway.http.message import Headers

HEAD_LIMIT = 64 << 10


class DisconnectReason(StrEnum):
    """How an exchange broke."""

    REFUSED = "refused"
    """No connection came about; the worker has seen nothing of the request."""
    STALE = "stale"
    """A kept connection was closed just as it was used again: an ordinary race, not the worker's fault."""
    CLOSED = "closed"
    """The connection ended before the response did."""
    INVALID = "invalid"
    """What came back is not HTTP."""


class Receiver(Protocol):
    """Who gets a response. `data` comes at most once per packet."""

    def head(self, status: int, headers: Headers) -> None:
        """Status and headers, names in lower case."""
        ...

    def data(self, data: bytes) -> None:
        """A piece of the body."""
        ...

    def end(self) -> None:
        """The response is complete."""
        ...

    def lost(self, loss: DisconnectReason) -> None:
        """There will be no more of it."""
        ...


class UpstreamConnection(asyncio.Protocol):
    """`on_idle` takes the connection back after a response, `on_closed` hears of its end."""

    _headed: bool
    _complete: bool
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
        self._receiver: Receiver | None = None
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

    @property
    def complete(self) -> bool:
        return self._complete

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast("asyncio.Transport", transport)  # uvloop's is one by its methods alone
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, request: list[bytes], receiver: Receiver) -> None:
        """Send a request; its response goes to `receiver`."""
        self._receiver = receiver
        self._clear()
        if self._transport is None:
            self._lose(DisconnectReason.STALE if self._used else DisconnectReason.CLOSED)
        else:
            self._transport.writelines(request)

    def serves(self, receiver: Receiver) -> bool:
        """Whether the exchange under way is this receiver's; it may long be another's."""
        return self._receiver is receiver

    def pause(self) -> None:
        """Read no more for now: whoever gets the response cannot take it so fast."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._transport is not None:
            self._transport.resume_reading()

    def abort(self) -> None:
        """Close at once: the worker sees that nobody listens. The receiver hears nothing more."""
        self._receiver = None
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        receiver = self._receiver
        if receiver is None:
            self.abort()
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._broken = True
        if not self._headed:
            self._deliver_head(receiver, len(data))
        if self._body and self._headed and self._receiver is not None:
            piece = b"".join(self._body)
            self._body.clear()
            receiver.data(piece)
        if self._complete and self._receiver is not None:
            self._finish()
        elif self._broken:
            self._lose(DisconnectReason.INVALID)

    def connection_lost(self, _error: Exception | None) -> None:
        """asyncio: the connection is closed; that ends a response without a length."""
        self._transport = None
        self._on_closed(self)
        if self._receiver is None:
            return
        if self._headed and self._until_close and _error is None:
            self._finish()
        else:
            self._lose(DisconnectReason.STALE if self._used and not self._headed else DisconnectReason.CLOSED)

    def on_message_begin(self) -> None:
        """httptools: a response starts; one that nobody asked for is not parsed, and makes the connection useless."""
        if self._complete:
            raise ValueError

    def on_header(self, name: bytes, value: bytes) -> None:
        """httptools: one header, or one trailer, which nobody reads."""
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

    def _deliver_head(self, receiver: Receiver, size: int) -> None:
        self._head_size += size
        self._broken = self._broken or self._head_size > HEAD_LIMIT
        if self._status >= 200:
            self._headed = True
            receiver.head(self._status, self._headers)

    def _finish(self) -> None:
        receiver, self._receiver, transport = self._receiver, None, self._transport
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
        receiver, self._receiver = self._receiver, None
        if self._transport is not None:
            self._transport.abort()
        if receiver is not None:
            receiver.lost(loss)

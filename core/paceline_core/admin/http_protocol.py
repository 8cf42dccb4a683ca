"""uvicorn's HTTP/1.1 with bounded heads and turns, and with an error object for requests that cannot be parsed.

One read may hold 37,000 chunks of two bytes or 14,000 pipelined requests. So it is parsed in parts of SLICE, each in a
turn of the loop of its own, and reading stops while some of it waits. The parser keeps all bytes of an incomplete
header or trailer, and copies them with each slice; so bytes that yield no body are bounded by HEAD_BYTES, within a body
too. A connection ends if a request is incomplete MESSAGE_S after it began, or after the connection was made: otherwise
a client without credentials could hold any number of them.

A connection refused in this way sends the error, is read for LINGER_S more, since closing it at once could lose the
answer, and ends. Known hole: if another answer is under way on the same connection, it just ends.
"""

import asyncio
import secrets
import sys
from collections.abc import Callable

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from paceline_core.errors import Code, RequestError, error_response

HEAD_BYTES = 64 << 10
"""Twice the gateway's limit: it adds headers of its own."""
HEADER_COST = 32
"""Bytes that each header counts in addition to its text, as at the gateway, so that their number is bounded too."""
LINGER_S = 2.0
MESSAGE_S = 60.0
SLICE = 8 << 10
"""Bytes: 1,200 chunks of two, or 450 pipelined requests, take some 10 ms."""


class _Flow(FlowControl):
    """Flow control that leaves the start of reading to `resumed`."""

    def __init__(self, transport: asyncio.Transport, resumed: Callable[[], None]) -> None:
        super().__init__(transport)
        self._resumed = resumed

    def resume_reading(self) -> None:
        if self.read_paused:
            self.read_paused = False
            self._resumed()


class BoundedHttpProtocol(HttpToolsProtocol):
    """One connection. `pending` is the unparsed part of one read; it waits for its turn or for an earlier request."""

    pending = b""
    _scheduled = False
    _head = _open = 0
    _in_head = _in_body = False
    _refusal: RequestError | None = None
    _refused = False
    _limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = _Flow(transport, self._go_on)
        self._limit = self.loop.call_later(MESSAGE_S, self._late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_limit()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self.pending += data
        if not self._scheduled and not self.flow.read_paused:
            self._parse()

    def _go_on(self) -> None:
        """Resume reading, or first parse what was read, in a later turn."""
        if not self.pending:
            self.transport.resume_reading()
        elif not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self._again)

    def _again(self) -> None:
        self._scheduled = False
        if not self.flow.read_paused:
            self._parse()

    def _parse(self) -> None:
        data, self.pending = self.pending[:SLICE], self.pending[SLICE:]
        self._take(data)
        if self._refused:
            self.pending = b""
            self.transport.resume_reading()
        elif self.parser is None or self.transport.get_protocol() is not self:
            self.pending = b""  # the connection has no parser any more
        elif self.pending:
            self.transport.pause_reading()
            if not self.flow.read_paused:
                self._go_on()
        elif not self.flow.read_paused:
            self.transport.resume_reading()

    def _take(self, data: bytes) -> None:
        """Parse, and count the bytes between two complete headers or two pieces of a body."""
        if self._refused or self.parser is None:
            return
        in_head, in_body = self._in_head, self._in_body
        self._open += len(data)
        super().data_received(data)
        still = (in_head and self._in_head) or (in_body and self._in_body)
        if still and self._open > HEAD_BYTES and not self._refused:
            self._refusal = _too_large()
            self.send_400_response("")
        waits = self._in_head or self._in_body or self.cycle is None or self.cycle.response_complete
        if waits and self._limit is None:  # an empty line ends uvicorn's own limit
            self._limit = self.loop.call_later(MESSAGE_S, self._late)

    def _late(self) -> None:
        self._limit = None
        if self.transport.get_protocol() is self:
            self.transport.close()

    def _end_limit(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def on_message_begin(self) -> None:
        self._head = self._open = 0
        self._in_head, self._in_body = True, False
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """The parser's call; a RequestError raised here counts as a parse error."""
        super().on_url(url)
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._count(len(name) + len(value) + HEADER_COST)

    def on_headers_complete(self) -> None:
        self._in_head, self._in_body, self._open = False, True, 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._open = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_body = False
        self._end_limit()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's message says less than the parser's
        """Answer a request that cannot be parsed, unless another answer is under way, and end the connection."""
        self._refused = True
        if self._answering or self.transport.is_closing():
            self.transport.close()
            return
        words = f"The request is not valid HTTP/1.1: {sys.exception()}."
        response = error_response(self._refusal or RequestError(Code.INVALID_REQUEST, words))
        own = {"x-request-id": secrets.token_hex(12), "content-length": len(response.body), "connection": "close"}
        lines = "".join(f"{name}: {value}\r\n" for name, value in {**response.headers, **own}.items())
        self.transport.write(STATUS_LINE[response.status] + lines.encode() + b"\r\n" + response.body)
        self.transport.write_eof()
        self.loop.call_later(LINGER_S, self.transport.close)

    @property
    def _answering(self) -> bool:
        """Whether an answer is under way, or this request's answer has been sent."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            return cycle is not None and self._in_body
        return cycle.response_started or not cycle.more_body

    def _count(self, size: int) -> None:
        self._head += size
        if self._head > HEAD_BYTES:
            self._refusal = _too_large()
            raise self._refusal


def _too_large() -> RequestError:
    message = f"The request's head is over the limit of {HEAD_BYTES} bytes; send fewer headers."
    return RequestError(Code.HEADERS_TOO_LARGE, message)

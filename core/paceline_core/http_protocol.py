"""uvicorn's HTTP/1.1, with bounded heads and turns, and with an error object for what cannot be read.

A read of a client's bytes may hold 37,000 chunks of two bytes or 14,000 pipelined requests: it is parsed by
SLICE, each in a turn of the loop of its own, and reading stops while some of it waits.

A connection that was refused so says so, is read for LINGER_S more, since a close at once would take the answer with
it, and ends. Known hole: where another answer is on its way over the same connection, it just ends.
"""

import asyncio
import secrets
import sys
from collections.abc import Callable

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from paceline_core.errors import Code, RequestError, answer

HEAD_BYTES = 64 << 10
"""Twice what a gateway takes: it adds headers of its own."""
HEADER_COST = 32
"""What each header counts for beyond its text, as at the gateway: so the limit in bytes is one of their number too."""
LINGER_S = 2.0
SLICE = 8 << 10
"""Bytes: 1,200 chunks of two, or 450 pipelined requests, take some 10 ms."""


class _Flow(FlowControl):
    """Where uvicorn would go on reading, `resumed` decides."""

    def __init__(self, transport: asyncio.Transport, resumed: Callable[[], None]) -> None:
        super().__init__(transport)
        self._resumed = resumed

    def resume_reading(self) -> None:
        """uvicorn's call."""
        if self.read_paused:
            self.read_paused = False
            self._resumed()


class Protocol(HttpToolsProtocol):
    """One connection. `pending` waits for its turn or for a request before it: it is what is left of one read."""

    pending = b""
    _scheduled = False
    _head = _open = 0
    _in_head = False
    _refusal: RequestError | None = None
    _refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """asyncio's call."""
        super().connection_made(transport)
        self.flow = _Flow(transport, self._go_on)

    def data_received(self, data: bytes) -> None:
        """asyncio's call."""
        self.pending += data
        if not self._scheduled and not self.flow.read_paused:
            self._parse()

    def _go_on(self) -> None:
        """Read, or first parse in a later turn what has been read."""
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
        if self._refused or self.parser is None or self.transport.get_protocol() is not self:
            self.pending = b""  # nobody is there to whom it would mean anything
        elif self.pending:
            self.transport.pause_reading()
            if not self.flow.read_paused:
                self._go_on()
        elif not self.flow.read_paused:
            self.transport.resume_reading()

    def _take(self, data: bytes) -> None:
        """Only what comes between two whole headers is counted here."""
        if self._refused or self.parser is None:
            return
        within = self._in_head
        super().data_received(data)
        if within and self._in_head and not self._refused:
            self._open += len(data)
            if self._open > HEAD_BYTES:
                self._refusal = _too_large()
                self.send_400_response("")

    def on_message_begin(self) -> None:
        """The parser's call."""
        self._head = self._open = 0
        self._in_head = True
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """The parser's call; raises RequestError, which it takes for a parse error."""
        super().on_url(url)
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """The same."""
        super().on_header(name, value)
        self._count(len(name) + len(value) + HEADER_COST)

    def on_headers_complete(self) -> None:
        """The parser's call."""
        self._in_head = False
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's words say less than the parser's
        """Answer what cannot be read, if no other answer is in the way, and end the connection."""
        self._refused = True
        if self._answering or self.transport.is_closing():
            self.transport.close()
            return
        words = f"The request is not valid HTTP/1.1: {sys.exception()}."
        said = answer(self._refusal or RequestError(Code.INVALID_REQUEST, words))
        own = {"x-request-id": secrets.token_hex(12), "content-length": len(said.body), "connection": "close"}
        lines = "".join(f"{name}: {value}\r\n" for name, value in {**said.headers, **own}.items())
        self.transport.write(STATUS_LINE[said.status] + lines.encode() + b"\r\n" + said.body)
        self.transport.write_eof()
        self.loop.call_later(LINGER_S, self.transport.close)

    @property
    def _answering(self) -> bool:
        cycle = self.cycle
        return cycle is not None and not cycle.response_complete and (cycle.response_started or not cycle.more_body)

    def _count(self, size: int) -> None:
        self._head += size
        if self._head > HEAD_BYTES:
            self._refusal = _too_large()
            raise self._refusal


def _too_large() -> RequestError:
    message = f"The request's head is over the limit of {HEAD_BYTES} bytes; send fewer headers."
    return RequestError(Code.HEADERS_TOO_LARGE, message)

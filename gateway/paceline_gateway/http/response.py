"""The answer to one request, written by the rest of the gateway: complete, or begun and continued.

An error has the only form that is possible at that moment: a complete OpenAI error object before the first byte, an SSE
event after it. A reply whose client is gone discards what is written to it.

Over WebSocket, server-sent events become messages, and a complete answer or an error is one message: the same texts as
the worker's own WebSocket sends (docs/api.md). There is no status and no headers; the error object contains what a
client needs of them: whether and when to retry.
"""

from collections.abc import Callable
from typing import Any, Protocol

import orjson

from paceline_core.errors import RequestError, error_response
from paceline_gateway.http.message import status_line

_JSON = b"content-type: application/json\r\n"
_DATA = b"data:"
EVENT_LIMIT = 4 << 20
"""The most bytes of one event over WebSocket; a stream with a longer one breaks off."""


class ServerState(Protocol):
    """`date`: the Date header's line. `closing`: answers that begin now are the last of their connections."""

    date: bytes
    closing: bool


class ResponseTransport(Protocol):
    """A connection, as its replies use it."""

    @property
    def server(self) -> ServerState: ...

    def write(self, data: bytes) -> None:
        """Send bytes; does nothing when the client is gone."""
        ...

    def answered(self, *, keep_alive: bool) -> None: ...

    def abort(self) -> None:
        """Close at once: the client must not take what it has for the whole answer."""
        ...


def _ignore(_paused: bool) -> None:
    """Ignore how slowly the client reads."""


class ResponseWriter:
    """An answer. `on_gone` is called once if the client leaves before the end, with whether it was cut because it read
    nothing; `on_pressure` when it reads slowly.

    `bare`: it answers HEAD, so only the length of its content is sent. `path`: the route, for the form of its errors.
    `fields`: header lines that it always has.
    """

    __slots__ = (
        "_bare", "_chunked", "_fields", "_held", "_keep_alive", "_last", "_path", "_wire", "_write", "begun", "done",
        "on_gone", "on_pressure",
    )  # fmt: skip

    def __init__(  # noqa: PLR0913 - the properties of a head
        self,
        wire: ResponseTransport,
        *,
        keep_alive: bool,
        chunked: bool,
        bare: bool = False,
        path: str = "",
        fields: bytes = b"",
    ) -> None:
        self._wire = wire
        self._keep_alive = keep_alive
        self._chunked = chunked
        self._bare = bare
        self._path = path
        self._fields = fields
        self._last = b""
        self._held: list[bytes] = []
        self._write: Callable[[bytes], None] = wire.write
        self.begun = False
        self.done = False
        self.on_gone: Callable[[bool], None] | None = None
        self.on_pressure: Callable[[bool], None] = _ignore

    def hold(self) -> None:
        """The end follows at once: send what comes before it in the same write."""
        self._write = self._held.append

    def whole(self, status: int, fields: bytes, body: bytes) -> None:
        if self.done:
            return
        length, last = b"content-length: %d\r\n" % len(body), self._last_fields()
        content = b"" if self._bare else body
        self._wire.write(b"".join((status_line(status), fields, length, last, b"\r\n", content)))
        self._end(self._keep_alive)

    def begin(self, status: int, fields: bytes, first: bytes) -> None:
        """Send the head and the first piece in one write."""
        if self.done:
            return
        self.begun, self._last = True, first
        self._keep_alive = self._keep_alive and self._chunked
        coding = b"transfer-encoding: chunked\r\n" if self._chunked else b""
        rest = (fields, coding, self._last_fields(), b"\r\n", self._frame(first))
        self._write(b"".join((status_line(status), *rest)))

    def more(self, data: bytes) -> None:
        """Send a further piece; an empty one does nothing."""
        if data and not self.done:
            self._last = data
            self._write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)

    def end(self, last: bytes = b"") -> None:
        if self.done:
            return
        self._wire.write(b"".join((*self._held, self._frame(last), b"0\r\n\r\n" if self._chunked else b"")))
        self._end(self._keep_alive)

    def fail(self, error: RequestError, fields: bytes = b"") -> None:
        """End with an error in the form that is still possible."""
        if self.done:
            return
        answer = error_response(error, self._path)
        if self.begun:
            # an incomplete event of the worker must not swallow ours
            self.end(answer.event if self._last.endswith(b"\n\n") else b"\n\n" + answer.event)
        else:
            lines = b"".join([f"{name}: {value}\r\n".encode() for name, value in answer.headers.items()])
            self.whole(answer.status, lines + fields, answer.body)

    def gone(self, *, stalled: bool = False) -> None:
        """The client left, or was cut because it read nothing."""
        if not self.done:
            self.done = True
            if self.on_gone is not None:
                self.on_gone(stalled)
            self.on_gone, self.on_pressure = None, _ignore

    def _end(self, keep_alive: bool) -> None:
        self.done = True
        # the listener probably holds this reply: without the cycle both are freed at once
        self.on_gone, self.on_pressure = None, _ignore
        self._wire.answered(keep_alive=keep_alive)

    def _last_fields(self) -> bytes:
        """The last lines of every head; only here can a client learn that the connection ends."""
        server = self._wire.server
        self._keep_alive = self._keep_alive and not server.closing
        last = server.date if self._keep_alive else server.date + b"connection: close\r\n"
        return self._fields + last if self._fields else last

    def _frame(self, data: bytes) -> bytes:
        if not self._chunked or not data:
            return data
        return b"%x\r\n%b\r\n" % (len(data), data)


class WebSocketTransport(ResponseTransport, Protocol):
    """A WebSocket connection, as its replies use it."""

    def send(self, messages: list[bytes]) -> None: ...


class WebSocketResponse(ResponseWriter):
    """The answer to one message."""

    __slots__ = ("_channel", "_rest")

    def __init__(self, channel: WebSocketTransport) -> None:
        super().__init__(channel, keep_alive=True, chunked=True)
        self._channel = channel
        self._rest = b""

    def whole(self, status: int, fields: bytes, body: bytes) -> None:  # noqa: ARG002 - a message has neither
        if not self.done:
            self._channel.send([body])
            self._end(keep_alive=True)

    def begin(self, status: int, fields: bytes, first: bytes) -> None:  # noqa: ARG002 - as above
        """The first events."""
        self.begun = True
        self.more(first)

    def more(self, data: bytes) -> None:
        """Further bytes of the stream; an event is sent when it is complete."""
        if self.done:
            return
        *events, self._rest = (self._rest + data).split(b"\n\n")
        messages = []
        for event in events:
            lines = [line[len(_DATA) :].strip() for line in event.split(b"\n") if line.startswith(_DATA)]
            if message := b"\n".join(lines):
                messages.append(message)
        if messages:
            self._channel.send(messages)
        if len(self._rest) > EVENT_LIMIT:
            self._wire.abort()

    def end(self, last: bytes = b"") -> None:
        if not self.done:
            self.more(last)
            self._end(keep_alive=True)

    def fail(self, error: RequestError, fields: bytes = b"") -> None:
        """Send the error object with the fields that HTTP has in headers; after events, also their end."""
        if self.done:
            return
        answer = error_response(error)
        if self.begun:
            self._rest = b""
            self.end(answer.event)
            return
        body: dict[str, Any] = orjson.loads(answer.body)
        body["error"]["should_retry"] = answer.headers["x-should-retry"] == "true"
        if (wait := answer.headers.get("retry-after-ms")) is not None:
            body["error"]["retry_after_ms"] = int(wait)
        self.whole(answer.status, fields, orjson.dumps(body))


def request_id_field(request_id: bytes) -> bytes:
    """The header line that names a request."""
    return b"x-request-id: " + request_id + b"\r\n"


def json_fields(request_id: bytes) -> bytes:
    """Header lines of a JSON answer of our own."""
    return _JSON + request_id_field(request_id)

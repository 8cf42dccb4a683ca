"""The answer to one request, as the rest of the gateway writes it: whole, or begun and continued.

Errors take the only form they can at that moment: a whole OpenAI error object before the first byte, an SSE event
after it. A reply whose client has gone swallows what is written to it.
"""

from collections.abc import Callable
from typing import Protocol

from paceline_core.errors import RequestError, error_response
from paceline_gateway.http.message import Headers, block, status_line

_JSON = b"content-type: application/json\r\n"
_PASSED_ON = (b"content-type", b"cache-control", b"retry-after", b"retry-after-ms", b"x-should-retry")


class ResponseTransport(Protocol):
    """What a reply needs of its connection."""

    def write(self, data: bytes) -> None:
        """Send bytes; nothing happens when the client is gone."""
        ...

    def answered(self, *, keep_alive: bool) -> None:
        """The reply is complete."""
        ...

    def abort(self) -> None:
        """Close at once: the client must not take what it has for the whole."""
        ...

    @property
    def date(self) -> bytes:
        """The Date header's line."""
        ...

    @property
    def closing(self) -> bool:
        """Answers that begin now shall be the last of their connections."""
        ...


def _ignore(_paused: bool) -> None:
    """Nobody cares."""


class ResponseWriter:
    """One answer. `on_gone` is called once if the client leaves before the end, with whether it was cut since it read
    nothing; `on_pressure` when it reads slowly.

    `bare`: it answers HEAD, so its content is told by its length alone. `path`: the route, for the form of its errors.
    `fields`: header lines of its head, whatever it is.
    """

    __slots__ = (
        "_bare",
        "_chunked",
        "_fields",
        "_held",
        "_keep_alive",
        "_last",
        "_path",
        "_wire",
        "_write",
        "begun",
        "done",
        "on_gone",
        "on_pressure",
    )

    def __init__(  # noqa: PLR0913 - what a head says of its answer
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
        """The end follows at once, so what comes before it goes out in one write with it."""
        self._write = self._held.append

    def whole(self, status: int, fields: bytes, body: bytes) -> None:
        """Head and body in one write; `fields` are complete header lines."""
        if self.done:
            return
        length, common = b"content-length: %d\r\n" % len(body), self._common()
        content = b"" if self._bare else body
        self._wire.write(b"".join((status_line(status), fields, length, common, b"\r\n", content)))
        self._end(self._keep_alive)

    def begin(self, status: int, fields: bytes, first: bytes) -> None:
        """Head and first piece in one write."""
        if self.done:
            return
        self.begun, self._last = True, first
        self._keep_alive = self._keep_alive and self._chunked
        coding = b"transfer-encoding: chunked\r\n" if self._chunked else b""
        head = (status_line(status), fields, coding, self._common(), b"\r\n", self._frame(first))
        self._write(b"".join(head))

    def more(self, data: bytes) -> None:
        """A further piece; an empty one is nothing."""
        if data and not self.done:
            self._last = data
            self._write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)

    def end(self, last: bytes = b"") -> None:
        """The last piece, which may be empty."""
        if self.done:
            return
        self._wire.write(b"".join((*self._held, self._frame(last), b"0\r\n\r\n" if self._chunked else b"")))
        self._end(self._keep_alive)

    def fail(self, error: RequestError, fields: bytes = b"") -> None:
        """End with an error in the form that is still possible."""
        if self.done:
            return
        spoken = error_response(error, self._path)
        if self.begun:
            # an event that the worker left half sent must not swallow ours
            self.end(spoken.event if self._last.endswith(b"\n\n") else b"\n\n" + spoken.event)
        else:
            lines = block([(name.encode(), value.encode()) for name, value in spoken.headers.items()])
            self.whole(spoken.status, lines + fields, spoken.body)

    def gone(self, *, stalled: bool = False) -> None:
        """The client has left, or was cut since it read nothing."""
        if not self.done:
            self.done = True
            if self.on_gone is not None:
                self.on_gone(stalled)
            self._forget()

    def _end(self, keep_alive: bool) -> None:
        self.done = True
        self._forget()
        self._wire.answered(keep_alive=keep_alive)

    def _forget(self) -> None:
        """Who listens most likely holds this reply: as no circle both go at once, without the garbage collector."""
        self.on_gone, self.on_pressure = None, _ignore

    def _common(self) -> bytes:
        """The last lines of every head: the client is told of the connection's end here or not at all."""
        self._keep_alive = self._keep_alive and not self._wire.closing
        last = self._wire.date if self._keep_alive else self._wire.date + b"connection: close\r\n"
        return self._fields + last if self._fields else last

    def _frame(self, data: bytes) -> bytes:
        if not self._chunked or not data:
            return data
        return b"%x\r\n%b\r\n" % (len(data), data)


def request_id_field(request_id: bytes) -> bytes:
    """The header line that names a request."""
    return b"x-request-id: " + request_id + b"\r\n"


def passed_on(headers: Headers) -> bytes:
    """Those lines of a worker's head that are for the client too."""
    return b"".join([b"%b: %b\r\n" % (name, headers[name]) for name in _PASSED_ON if name in headers])


def json_fields(request_id: bytes) -> bytes:
    """Header lines of a JSON answer of our own."""
    return _JSON + request_id_field(request_id)

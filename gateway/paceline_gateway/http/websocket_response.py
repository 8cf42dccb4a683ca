"""A reply over WebSocket: what would be server-sent events are messages, and a whole answer or an error is one message.

The same texts as the worker's own WebSocket sends (docs/api.md). Status and headers have no place there: what a client
needs of them, whether and when to ask again, stands in the error object.
"""

from typing import Any, Protocol

import orjson

from paceline_core.errors import ErrorResponse, RequestError, error_response
from paceline_gateway.http.response import ResponseTransport, ResponseWriter

_DATA = b"data:"
EVENT_LIMIT = 4 << 20
"""Bytes of one event; a stream with a longer one breaks off."""


class WebSocketTransport(ResponseTransport, Protocol):
    """A WebSocket connection, as its replies see it."""

    def send(self, messages: list[bytes]) -> None:
        """Send texts, in one write."""
        ...


class WebSocketResponse(ResponseWriter):
    """One message's answer."""

    __slots__ = ("_channel", "_rest")

    def __init__(self, channel: WebSocketTransport) -> None:
        super().__init__(channel, keep_alive=True, chunked=True)
        self._channel = channel
        self._rest = b""

    def whole(self, status: int, fields: bytes, body: bytes) -> None:  # noqa: ARG002 - a message has neither
        """One message."""
        if not self.done:
            self._channel.send([body])
            self._end(keep_alive=True)

    def begin(self, status: int, fields: bytes, first: bytes) -> None:  # noqa: ARG002 - as above
        """The first events."""
        self.begun = True
        self.more(first)

    def more(self, data: bytes) -> None:
        """Further bytes of the stream; an event is sent when it is whole."""
        if self.done:
            return
        *events, self._rest = (self._rest + data).split(b"\n\n")
        messages = [payload for event in events if (payload := _payload(event))]
        if messages:
            self._channel.send(messages)
        if len(self._rest) > EVENT_LIMIT:
            self._wire.abort()

    def end(self, last: bytes = b"") -> None:
        """The last bytes; an event that the worker left half sent goes nowhere."""
        if not self.done:
            self.more(last)
            self._end(keep_alive=True)

    def fail(self, error: RequestError, fields: bytes = b"") -> None:
        """The error object, and where events have been sent already, their end."""
        if self.done:
            return
        spoken = error_response(error)
        if self.begun:
            self._rest = b""
            self.end(spoken.event)
        else:
            self.whole(spoken.status, fields, _refusal(spoken))


def _payload(event: bytes) -> bytes:
    lines = [line[len(_DATA) :].strip() for line in event.split(b"\n") if line.startswith(_DATA)]
    return b"\n".join(lines)


def _refusal(spoken: ErrorResponse) -> bytes:
    """The error object with what stands in headers elsewhere."""
    body: dict[str, Any] = orjson.loads(spoken.body)
    body["error"]["should_retry"] = spoken.headers["x-should-retry"] == "true"
    if (wait := spoken.headers.get("retry-after-ms")) is not None:
        body["error"]["retry_after_ms"] = int(wait)
    return orjson.dumps(body)

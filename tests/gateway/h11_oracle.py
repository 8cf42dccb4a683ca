"""What h11 makes of a connection's bytes, and the few ways in which the gateway may differ from it.

The gateway may be stricter, for the reasons in `STRICTER`. It is never laxer, but for what `as_h11_likes_it` takes out
before h11 sees it: both are allowed by RFC 9112 (2.2 and 3), and neither can shift where a message ends.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import h11

STRICTER = {
    "Content-Length can't be present with Transfer-Encoding": "both lengths: the classic of request smuggling",
    "Transfer-Encoding can't be present with Content-Length": "the same, other order",
    "Duplicate Content-Length": "h11 lets equal ones pass; no client of ours sends two",
    "Invalid character in Content-Length": "h11 lets a list of equal numbers pass",
    "Content-Length overflow": "no body may be so long",
    "body is over the limit": "our own limit",
    "head is over the limit": "our own limit",
    "The header ": "host, authorization and others (`_ONCE`) may stand once only",
    "The only versions served": "h11 lets any digits pass",
    "The only transfer-encoding": "chunked in HTTP/1.0 is a framing fault (RFC 9112, 6.1)",
    "Invalid HTTP version": "h11 lets any digits pass",
    "Invalid method": "llhttp knows the methods by name",
    "Expected space after method": "llhttp knows the methods by name",
    "Expected HTTP/2 Connection Preface": "PRI is no method of HTTP/1.1",
    "Pause on PRI/Upgrade": "the preface of HTTP/2",
    "Tunnels and upgrades": "CONNECT, and upgrades but to WebSocket; h11 leaves them to its user",
    "Unexpected char in url": "h11 lets any printable target pass",
    "Invalid characters in url": "the same",
    "Unexpected start char in url": "the same",
    "Invalid char in url": "the same",
    "Missing expected CR": "bare line feeds, which h11 takes for line ends",
    "Missing expected LF": "bare carriage returns",
    "Expected CRLF after version": "bare line feeds",
    "Expected LF after": "bare carriage returns",
    "Unexpected whitespace after header value": "folded headers, which h11 joins",
    "Invalid header value char": "control characters other than NUL",
    "Invalid header field char": "h11 lets an underscore in content_length pass, and bare line feeds end the head",
    "Invalid header token": "the same",
    "Invalid character in chunk size": "blanks behind the size",
    "Invalid character in chunk": "chunk extensions that are none",
    "Invalid `Transfer-Encoding` header value": "chunked is not the last coding",
    "Expected LF after chunk": "bare carriage returns",
    "requests wait on this connection": "our own limit of a pipeline",
}
"""Parts of our refusals' messages, and why we refuse what h11 takes."""

HARMLESS = ("no response line received", "illegal status line", "Only Transfer-Encoding: chunked is supported")
"""Faults that h11 finds in responses and llhttp does not: empty lines before one, control characters in a reason, an
odd coding of a 204 or 304, which have no body. None moves a message's end."""
_FIRST_LINE = re.compile(rb"([^ \r\n]+) +([^ \r\n]+) +(HTTP/[0-9.]+\r?\n)")
HEAD_LIMIT = 1 << 20


@dataclass(slots=True)
class Message:
    """One request or response. `start` is method and path, or the status."""

    start: tuple[str, ...]
    headers: dict[bytes, bytes]
    body: bytes = b""


@dataclass(slots=True)
class Heard:
    """All messages up to the first fault, or up to the one that closes the connection."""

    messages: list[Message] = field(default_factory=list)
    fault: str = ""
    closed: bool = False


def as_h11_likes_it(data: bytes) -> bytes:
    """Without empty lines before the request, and with one blank between the parts of its first line."""
    data = data.lstrip(b"\r\n")
    line = _FIRST_LINE.match(data)
    return b" ".join(line.groups()) + data[line.end() :] if line else data


def hear_requests(data: bytes) -> Heard:
    """h11 as a server, a connection anew for each request."""
    heard = Heard()
    while data and not heard.closed:
        peer = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_LIMIT)
        peer.receive_data(as_h11_likes_it(data))
        try:
            message = _request(peer)
        except h11.RemoteProtocolError as error:
            heard.fault = str(error)
            return heard
        if message is None:
            return heard
        heard.messages.append(message)
        heard.closed = peer.their_state in (h11.MUST_CLOSE, h11.CLOSED) and not _old_and_kept(peer, message)
        data = peer.trailing_data[0]
    return heard


def hear_response(data: bytes, *, eof: bool) -> tuple[Message | None, bool, str]:
    """h11 as a client that has asked: the response if it is complete, whether the connection is reusable, the fault."""
    peer = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_LIMIT)
    peer.send(h11.Request(method="POST", target="/", headers=[("host", "a"), ("content-length", "0")]))
    peer.send(h11.EndOfMessage())
    try:
        peer.receive_data(data)
        if eof:
            peer.receive_data(b"")
        message = _response(peer)
    except h11.RemoteProtocolError as error:
        return None, False, str(error)
    return message, peer.their_state is h11.DONE and not peer.trailing_data[0], ""


def _request(peer: h11.Connection) -> Message | None:
    event = peer.next_event()
    if not isinstance(event, h11.Request):
        return None
    target = event.target.decode()
    absolute = urlsplit(target, allow_fragments=False).path or "/" if "://" in target.partition("?")[0] else "/"
    path = target.partition("?")[0] if target.startswith("/") else absolute
    return _rest(peer, Message((event.method.decode(), path), plain(event.headers)))


def _response(peer: h11.Connection) -> Message | None:
    while isinstance(event := peer.next_event(), h11.InformationalResponse):
        pass
    if not isinstance(event, h11.Response):
        return None
    return _rest(peer, Message((str(event.status_code),), plain(event.headers)))


def plain(headers: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """The last of each name; h11 writes this coding in small letters."""
    return {name: value.lower() if name == b"transfer-encoding" else value for name, value in headers}


def _rest(peer: h11.Connection, message: Message) -> Message | None:
    while isinstance(event := peer.next_event(), h11.Data):
        message.body += bytes(event.data)
    return message if isinstance(event, h11.EndOfMessage) else None


def _old_and_kept(peer: h11.Connection, message: Message) -> bool:
    """HTTP/1.0 clients may ask for a kept connection by name; h11 has none."""
    return peer.their_http_version == b"1.0" and b"keep-alive" in message.headers.get(b"connection", b"").lower()

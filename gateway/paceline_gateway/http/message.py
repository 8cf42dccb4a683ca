"""Heads that repeat: over one connection a client's requests are mostly alike but for the length of their bodies.

A head that was read is known by its bytes from then on, and not parsed again when the same bytes come. Only the digits
of its content-length may differ, so nothing gets past here that the parser has not let past.

The nouns of the public side: a request's head, the whole request, and how header blocks are written.

Which upgrades are the handshake of a WebSocket (RFC 6455, 4.2.1).
"""

import base64
import binascii
import re
from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import NamedTuple

from paceline_core.objects.resolved import ResolvedTenant

Headers = dict[bytes, bytes]


@dataclass(slots=True)
class Head:
    """A request before its body; header names are lower case. The gate fills in `tenant`, and what it judged by.

    `upgrade`: it is the handshake of a WebSocket.
    """

    method: str
    path: str
    headers: Headers
    tenant: ResolvedTenant | None = None
    upgrade: bool = False
    judged: object = None

    def like(self, length: bytes) -> "Head":
        """The same of a request whose body has another length."""
        headers = self.headers | {b"content-length": length}
        return Head(self.method, self.path, headers, self.tenant, judged=self.judged)


class HttpRequest(NamedTuple):
    """A whole request. `received` is the monotonic time of its last byte."""

    head: Head
    body: bytes
    received: float
    keep_alive: bool
    chunked: bool
    """Whether the client's HTTP version knows chunked bodies (1.1)."""


_STATUS = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}


def status_line(status: int) -> bytes:
    """`HTTP/1.1 200 OK` and its line end; an unknown status goes without a phrase."""
    return _STATUS.get(status) or f"HTTP/1.1 {status} \r\n".encode()


def block(fields: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Header lines, each with its line end. Values must come from a parser or from us: they are not checked again."""
    return b"".join([b"%b: %b\r\n" % pair for pair in fields])


MAX_BYTES = 4096
"""Bytes of a head that is remembered."""
_DIGITS = 15
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,%d})[ \t]*\r\n" % _DIGITS, re.IGNORECASE)
_END = b"\r\n\r\n"


class CachedHead(NamedTuple):
    """A head by its bytes before and after the digits of its content-length; `chunked` as a request has it."""

    before: bytes
    after: bytes
    head: Head
    chunked: bool

    def match(self, data: bytes) -> tuple[bytes, int] | None:
        """If this head begins `data`: the digits of its content-length, and where its body begins."""
        if not data.startswith(self.before):
            return None
        begin = len(self.before)
        end = data.find(self.after, begin, begin + _DIGITS + len(self.after))
        digits = data[begin : max(end, begin)]
        return (digits, end + len(self.after)) if digits.isdigit() else None


def text_of(data: bytes) -> bytes:
    """The head that begins a packet, as it came; nothing if it is not whole or too long to be remembered."""
    return data[: data.find(_END, 0, MAX_BYTES) + len(_END)] if data[:1].isalpha() and _END in data[:MAX_BYTES] else b""


def remember(text: bytes, head: Head, *, chunked: bool) -> CachedHead | None:
    """How to know it again, if it announces its body by a length and asks for nothing else."""
    found = _LENGTH.search(text)
    if found is None or head.upgrade or b"expect" in head.headers:
        return None
    return CachedHead(text[: found.start(1)], text[found.end(1) :], head, chunked)


def is_cross_origin(headers: Headers) -> bool:
    """Whether a page of another site asks: browsers let any page connect, and say only here whose it is."""
    origin = headers.get(b"origin", b"")
    return origin != b"" and origin.partition(b"://")[2] != headers.get(b"host", b"")


def is_handshake(method: str, headers: Headers) -> bool:
    """Whether a request that asks for an upgrade asks for this one, and in order."""
    try:
        key = base64.b64decode(headers.get(b"sec-websocket-key", b""), validate=True)
    except binascii.Error:
        return False
    asks = headers.get(b"upgrade", b"").lower() == b"websocket" and headers.get(b"sec-websocket-version") == b"13"
    bodiless = not {b"content-length", b"transfer-encoding"} & headers.keys()
    return method == "GET" and asks and bodiless and len(key) == 16

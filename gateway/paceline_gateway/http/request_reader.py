"""Bytes in, requests out: httptools with limits around it. It has no sockets and no clock of its own.

Framing that two parsers could read differently is refused. llhttp refuses content-length beside transfer-encoding,
repeated or odd content-length, bare line feeds, folded headers and blanks before colons. This file adds transfer
codings other than one `chunked` of HTTP/1.1, versions other than 1.0 and 1.1, a missing or repeated Host, repeated
Authorization, and upgrades except to WebSocket. Two things pass that RFC 9112 allows: empty lines before a request, and
several blanks between the parts of its first line.
Limits apply before anything is buffered: the head by raw bytes fed, the body by its announced and its actual length.
After a fault of framing or of size the reader is deaf: pending answers are still given, nothing more is parsed.

A client's requests on one connection mostly differ only in the length of their bodies. So a parsed head is cached by
its bytes, and not parsed again when the same bytes come. Only the digits of its content-length may differ, so a cached
head accepts nothing that the parser would not.
"""

import base64
import binascii
import re
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import httptools

from paceline_core.errors import Code, RequestError
from paceline_gateway.config import HttpLimits
from paceline_gateway.http.limits import BODY_BYTES, FRAMING_BYTES, SharedLimit
from paceline_gateway.http.message import Head, HttpRequest

PIPELINE_LIMIT = 16
HEADER_COST = 32
"""Bytes that each header counts in addition to its text, as in HTTP/2: so the limit also bounds their number."""
MAX_BYTES = 4096
"""The most bytes of a cached head."""
_ONCE = frozenset((
    b"host", b"authorization", b"x-api-key", b"content-type", b"x-request-id", b"x-paceline-class", b"transfer-encoding"
))  # fmt: skip
_OTHERS = {b"PRI * HTTP/2": "HTTP/2", b"\x16\x03": "TLS"}
"""Protocols by their first bytes."""
_VERSIONS = frozenset({"1.0", "1.1"})
_DIGITS = 15
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,%d})[ \t]*\r\n" % _DIGITS, re.IGNORECASE)
_END = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class RejectedRequest:
    """A request that gets an error instead of being handled. `head` is None if it could not be read."""

    error: RequestError
    head: Head | None
    keep_alive: bool = False
    chunked: bool = True


def too_many_in_flight(request: HttpRequest) -> RejectedRequest:
    """The refusal for a tenant that has its full number of answers under way."""
    message = "Your requests take up all the connections that one tenant may have; retry."
    error = RequestError(Code.NO_CAPACITY, message, retry_after=1.0)
    return RejectedRequest(error, request.head, request.keep_alive, request.chunked)


def holder_of(head: Head | None) -> str:
    """The tenant whose share of the memory a request uses."""
    return "" if head is None or head.tenant is None else head.tenant.name


class CachedHead(NamedTuple):
    """A head by its bytes before and after the digits of its content-length; `chunked` as a request has it."""

    before: bytes
    after: bytes
    head: Head
    chunked: bool

    def match(self, data: bytes) -> tuple[bytes, int] | None:
        """If `data` begins with this head: the digits of its content-length, and the offset of its body."""
        if not data.startswith(self.before):
            return None
        begin = len(self.before)
        end = data.find(self.after, begin, begin + _DIGITS + len(self.after))
        digits = data[begin : max(end, begin)]
        return (digits, end + len(self.after)) if digits.isdigit() else None


def text_of(data: bytes) -> bytes:
    """The raw head at the start of a packet; empty if it is incomplete or too long to cache."""
    return data[: data.find(_END, 0, MAX_BYTES) + len(_END)] if data[:1].isalpha() and _END in data[:MAX_BYTES] else b""


def remember(text: bytes, head: Head, *, chunked: bool) -> CachedHead | None:
    """The head as a cache entry, if it gives its body's length and has no other special field."""
    found = _LENGTH.search(text)
    if found is None or head.upgrade or b"expect" in head.headers:
        return None
    return CachedHead(text[: found.start(1)], text[found.end(1) :], head, chunked)


class RequestReader:
    """The incoming side of a connection. `gate` checks a head before its body is read.

    `idle`: no request has begun; `in_body`: a head is complete, its body is not.
    """

    idle: bool
    in_body: bool
    expects: bool

    _head: Head | None
    _refused: RequestError | None
    _gated: RequestError | None

    def __init__(
        self,
        limits: HttpLimits,
        memory: SharedLimit,
        gate: Callable[[Head], RequestError | None],
        now: Callable[[], float],
    ) -> None:
        self.ready: deque[HttpRequest | RejectedRequest] = deque()
        self.deaf = False
        self._limits = limits
        self._room = limits.head_bytes
        self._memory = memory
        self._gate = gate
        self._now = now
        self._parser = httptools.HttpRequestParser(self)
        self._fed = self._got = 0
        self._progress = self._ended = False
        self._taken = self._missing = 0
        self._known: CachedHead | None = None
        self._text = b""
        self._more = bytearray()
        self._clear()

    def feed(self, data: bytes) -> int:
        """Process bytes; results are in `ready` and `deaf`. Returns the cost in units of the loop's budget."""
        size, self._got = len(data), 0
        if self.deaf:
            return size // BODY_BYTES
        data = self._fill(data) if self._missing else data
        while data and self.idle and not self.deaf and (rest := self._again(data)) is not None:
            data = rest
        if data and not self.deaf:
            self._parse(data)
        return (size - self._got) // FRAMING_BYTES + self._got // BODY_BYTES

    def _again(self, data: bytes) -> bytes | None:
        """Read a cached head and what there is of its body; returns the rest. None if the parser must read it."""
        known = self._known
        found = None if known is None else known.match(data)
        if known is None or found is None or (size := int(found[0])) > self._limits.body_bytes:
            return None
        head = known.head.like(found[0])
        if self._gate(head) is not None:
            return None
        begin, end = found[1], found[1] + size
        if end <= len(data) and not self.ready and self._memory.take(holder_of(head), size):
            self._got += size
            self.ready.append(HttpRequest(head, data[begin:end], self._now(), True, known.chunked))
            return data[end:]
        self.idle, self.in_body, self._head = False, True, head
        self._chunked, self._missing = known.chunked, size
        return self._fill(data[begin:])

    def _fill(self, data: bytes) -> bytes:
        """Continue a body after a cached head; returns the rest."""
        body = data[: self._missing]
        self._missing -= len(body)
        if body:
            self.on_body(body)
        if self._refused is not None:
            self._give_up(self._refused)
        elif not self._missing:
            self._complete(keep=True)
        return data[len(body) :]

    def _parse(self, data: bytes) -> None:
        if self.idle:
            self._text = text_of(data)
        within, got = self.in_body, self._got
        self._progress = self._ended = False
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.deaf = True  # refused by its head, or an upgrade: nothing may follow before our answer
        except httptools.HttpParserError as error:
            other = next((name for begin, name in _OTHERS.items() if data.startswith(begin)), "")
            spoken = other and f" This is {other}; speak plain HTTP/1.1 here."
            message = f"The request is not valid HTTP/1.1: {error}.{spoken}"
            self._give_up(self._refused or RequestError(Code.INVALID_REQUEST, message))
        if not self.idle and not self.deaf:
            # bytes that yield no body are head, chunk extension or trailer: llhttp would buffer any amount of them
            self._fed = 0 if self._progress else self._fed + len(data)
            self._check_head(self._fed)
            if within and self.in_body:
                # bounds chunk sizes, extensions and trailers: a small chunk costs as much as a large one
                self._framing += len(data) - self._got + got
                if self._framing > self._limits.head_bytes + self._taken // 2:
                    message = "The body's chunks are too small, or say too much beside it"
                    self._note(Code.INVALID_REQUEST, f"{message}; send chunks of 16 bytes or more.")
            self._give_up(self._refused)

    def late(self) -> None:
        """The request that has begun took too long."""
        part = "body" if self.in_body else "head"
        message = f"The request's {part} did not arrive in time; send it again."
        self._give_up(self._refused or RequestError(Code.REQUEST_TIMEOUT, message))

    def close(self) -> None:
        """The connection is gone: drop everything that waits."""
        self._drop_body()
        for item in self.ready:
            if isinstance(item, HttpRequest):
                self._memory.give(holder_of(item.head), len(item.body))
        self.ready.clear()
        self.deaf = True

    def on_message_begin(self) -> None:
        self.idle, self._progress = False, self._ended

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """httptools: one header, or one trailer, which is ignored."""
        if self.in_body:
            return
        headers, name, value = self._headers, name.lower(), value.strip()
        if name in headers and name in _ONCE:
            self._note(Code.INVALID_REQUEST, f"The header {name.decode()} stands twice; send it once.")
        self._size += len(name) + len(value) + HEADER_COST
        if self._size <= self._room:
            headers[name] = value

    def on_headers_complete(self) -> None:
        self._head = head = Head(self._parser.get_method().decode(), _path(self._url), self._headers)
        self.in_body, version = True, self._parser.get_http_version()
        self._chunked = version == "1.1"
        self._check_head(self._size + len(self._url))
        self._check_framing(head, version)
        if self._refused is None:
            self._gated = self._refused = self._gate(head)
        if self._refused is None and int(head.headers.get(b"content-length", b"0")) > self._limits.body_bytes:
            self._too_large()
        self.expects = self._refused is None and head.headers.get(b"expect", b"").lower() == b"100-continue"

    def on_body(self, body: bytes) -> None:
        self._progress = True
        self._got += len(body)
        if self._refused is not None or self.deaf:
            return
        if self._taken + len(body) > self._limits.body_bytes:
            self._too_large()
        elif not self._memory.take(holder_of(self._head), len(body)):
            self._note(Code.NO_CAPACITY, "The gateway holds as many request bodies as it may; retry.", 1.0)
        elif self._taken:
            self._taken += len(body)
            self._more += body
        else:
            self._taken, self._body = len(body), body

    def on_message_complete(self) -> None:
        self._ended = True
        if self.deaf:
            return
        keep = self._parser.should_keep_alive()
        if keep and self._text and self._head is not None and self._refused is None:
            self._known = remember(self._text, self._head, chunked=self._chunked)
        self._text = b""
        self._complete(keep=keep)

    def _complete(self, *, keep: bool) -> None:
        if len(self.ready) >= PIPELINE_LIMIT:
            self._note(Code.INVALID_REQUEST, f"More than {PIPELINE_LIMIT} requests wait on this connection.")
        if self._gated is not None:
            self._drop_body()
            self.ready.append(RejectedRequest(self._gated, self._head, keep, self._chunked))
        elif self._refused is not None:
            self._give_up(self._refused)
        elif self._head is not None:
            self._taken, body = 0, self._body + self._more if self._more else self._body
            self.ready.append(HttpRequest(self._head, body, self._now(), keep, self._chunked))
        self._clear()

    def _clear(self) -> None:
        self.idle, self.in_body, self.expects = True, False, False
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._head = self._refused = self._gated = None
        self._size = self._fed = self._framing = 0
        self._body = b""
        if self._more:
            self._more = bytearray()

    def _check_head(self, size: int) -> None:
        if size > self._limits.head_bytes:
            message = f"The request's head is over the limit of {self._limits.head_bytes} bytes; send fewer headers."
            self._note(Code.HEADERS_TOO_LARGE, message)

    def _check_framing(self, head: Head, version: str) -> None:
        headers = head.headers
        if version not in _VERSIONS:
            self._note(Code.INVALID_REQUEST, "The only versions served are HTTP/1.1 and HTTP/1.0.")
        coding = headers.get(b"transfer-encoding")
        if coding is not None and (coding.lower() != b"chunked" or version != "1.1"):
            self._note(Code.INVALID_REQUEST, "The only transfer-encoding served is chunked, over HTTP/1.1.")
        if b"host" not in headers and version == "1.1":
            self._note(Code.INVALID_REQUEST, "The header host is missing.")
        if self._parser.should_upgrade():
            self._check_upgrade(head)

    def _check_upgrade(self, head: Head) -> None:
        """Accept only the handshake of a WebSocket (RFC 6455, 4.2.1), and only a valid one."""
        headers = head.headers
        try:
            key = base64.b64decode(headers.get(b"sec-websocket-key", b""), validate=True)
        except binascii.Error:
            key = b""
        asks = headers.get(b"upgrade", b"").lower() == b"websocket" and headers.get(b"sec-websocket-version") == b"13"
        bodiless = not {b"content-length", b"transfer-encoding"} & headers.keys()
        head.upgrade = head.method == "GET" and asks and bodiless and len(key) == 16
        if not head.upgrade:
            message = "Tunnels and upgrades but WebSocket (version 13) are not served here; use plain HTTP/1.1."
            self._note(Code.INVALID_REQUEST, message)

    def _too_large(self) -> None:
        limit = self._limits.body_bytes
        self._note(
            Code.REQUEST_TOO_LARGE, f"The request's body is over the limit of {limit} bytes; shorten the prompt."
        )

    def _note(self, code: Code, message: str, retry_after: float | None = None) -> None:
        """Remember the first fault; the request is refused when its head or its body ends."""
        if self._refused is None:
            self._refused = RequestError(code, message, retry_after=retry_after)

    def _give_up(self, error: RequestError | None) -> None:
        if error is not None and not self.deaf:
            self._drop_body()
            self.ready.append(RejectedRequest(error, self._head))
            self.deaf = True

    def _drop_body(self) -> None:
        self._memory.give(holder_of(self._head), self._taken)
        self._taken = 0
        self._body, self._more = b"", bytearray()


@lru_cache(maxsize=64)
def _path(url: bytes) -> str:
    """The path without the query, and without scheme and host of an absolute target."""
    url = url.partition(b"?")[0]
    if not url.startswith(b"/"):
        _, _, rest = url.partition(b"://")
        url = b"/" + rest.partition(b"/")[2]
    return url.decode("latin-1")

"""Heads that repeat: over one connection a client's requests are mostly alike but for the length of their bodies.

A head that was read is known by its bytes from then on, and not parsed again when the same bytes come. Only the digits
of its content-length may differ, so nothing gets past here that the parser has not let past.
"""

import re
from typing import NamedTuple

from paceline_gateway.http.message import Head

MOST = 4096
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
    return data[: data.find(_END, 0, MOST) + len(_END)] if data[:1].isalpha() and _END in data[:MOST] else b""


def remember(text: bytes, head: Head, *, chunked: bool) -> CachedHead | None:
    """How to know it again, if it announces its body by a length and asks for nothing else."""
    found = _LENGTH.search(text)
    if found is None or head.upgrade or b"expect" in head.headers:
        return None
    return CachedHead(text[: found.start(1)], text[found.end(1) :], head, chunked)

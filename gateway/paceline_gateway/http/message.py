"""The types of the public side: a request's head, the whole request, and status lines."""

from dataclasses import dataclass
from http import HTTPStatus
from typing import NamedTuple

from paceline_core.objects.resolved import ResolvedTenant

Headers = dict[bytes, bytes]


@dataclass(slots=True)
class Head:
    """A request without its body; header names are lower case. The gate sets `tenant` and the version it checked with.

    `upgrade`: it is the handshake of a WebSocket.
    """

    method: str
    path: str
    headers: Headers
    tenant: ResolvedTenant | None = None
    upgrade: bool = False
    judged: object = None

    def like(self, length: bytes) -> "Head":
        headers = self.headers | {b"content-length": length}
        return Head(self.method, self.path, headers, self.tenant, judged=self.judged)


class HttpRequest(NamedTuple):
    """A whole request. `received` is the monotonic time of its last byte."""

    head: Head
    body: bytes
    received: float
    keep_alive: bool
    chunked: bool
    """Whether the client's HTTP version supports chunked bodies (1.1)."""


_STATUS = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}


def status_line(status: int) -> bytes:
    """`HTTP/1.1 200 OK` and its line end; an unknown status has no phrase."""
    return _STATUS.get(status) or f"HTTP/1.1 {status} \r\n".encode()

"""What goes to a worker: the client's body under headers of ours, and where a stream goes on, what was told so far.

The seed is sent with the first attempt already: a stream can go on with the same text only under the same seed, and a
body that names its own outdoes it.
"""

import random
from typing import NamedTuple

from paceline_core.wire import PREFIX, RESUME, SEED
from paceline_gateway.admission import Admission
from paceline_gateway.http.message import Request
from paceline_gateway.routing.worker import Worker


class Sender(NamedTuple):
    """Who asks, and under which promise: seconds per output token, 0 for none."""

    request: Request
    request_id: bytes
    tpot_s: float


class Outbound:
    """One request's message to whichever worker gets it. `trace`: what all of them hear of its trace, a header line."""

    __slots__ = ("_body", "_path", "_same")

    def __init__(self, sender: Sender, admission: Admission, trace: bytes = b"") -> None:
        head = sender.request.head
        tenant = "" if head.tenant is None else head.tenant.name
        self._body = admission.body
        self._path = head.path
        same = (
            f"content-type: application/json\r\nx-request-id: {sender.request_id.decode()}\r\n"
            f"x-paceline-class: {admission.request_class}\r\nx-paceline-tenant: {tenant}\r\n"
        )
        if admission.ours:
            same += f"{SEED}: {random.getrandbits(31)}\r\nx-paceline-max-tokens: {admission.max_tokens}\r\n"
        if admission.prefix is not None:
            same += f"{PREFIX}: {admission.prefix.header()}\r\n"
        if promise := round(sender.tpot_s * 1000):
            same += f"x-paceline-tpot-ms: {promise}\r\n"
        self._same = same.encode() + trace

    def message(
        self, worker: Worker, hop: str, deadline_ms: int, resume: bytes = b"", trace: bytes = b""
    ) -> list[bytes]:
        """Head and body for this worker; `resume` is where a stream goes on, `trace` what this worker hears."""
        host, port = worker.address
        size = len(self._body) + len(resume)
        own = (
            f"POST {self._path} HTTP/1.1\r\nhost: {host}:{port}\r\ncontent-length: {size}\r\nx-paceline-hop: {hop}\r\n"
        )
        own += f"{RESUME}: {len(resume)}\r\n" if resume else f"x-paceline-deadline-ms: {deadline_ms}\r\n"
        head = own.encode() + self._same + trace + b"\r\n"
        return [head, self._body, resume] if resume else [head, self._body]

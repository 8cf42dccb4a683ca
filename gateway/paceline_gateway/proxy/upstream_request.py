"""The message to a worker: the client's body under the gateway's own headers, and for a resumption the text so far.

The seed is sent with the first attempt already: a stream can resume with the same text only under the same seed. A seed
in the body takes precedence.
"""

import random
from functools import lru_cache

from paceline_core.registry.enums import RequestClass
from paceline_core.wire import PREFIX, RESUME, SEED
from paceline_gateway.api.admission import AdmittedRequest
from paceline_gateway.http.connection_pool import Address
from paceline_gateway.http.message import Head

_RESUME = RESUME.encode()


class UpstreamRequest:
    """A request's message to its worker.

    `tpot_s`: the promised seconds per output token, 0 for none; `trace`: the trace header line for all workers.
    """

    __slots__ = ("_body", "_path", "_same")

    def __init__(
        self, head: Head, request_id: bytes, admission: AdmittedRequest, tpot_s: float, trace: bytes = b""
    ) -> None:
        tenant = "" if head.tenant is None else head.tenant.name
        self._body = admission.body
        self._path = head.path
        same = _standing(admission.request_class, tenant, tpot_s)
        own = ""
        if admission.native:
            own = f"{SEED}: {random.getrandbits(31)}\r\nx-paceline-max-tokens: {admission.max_tokens}\r\n"
        if admission.prefix is not None:
            own += f"{PREFIX}: {admission.prefix.header()}\r\n"
        self._same = b"".join((same, b"x-request-id: %b\r\n" % request_id, own.encode(), trace, b"\r\n"))

    def message(
        self, address: Address, token: str, deadline_ms: int, resume: bytes = b"", trace: bytes = b""
    ) -> list[bytes]:
        """Head and body for the worker at `address`; `resume`: where a stream resumes, `trace`: this worker's lines."""
        opening = _opening(self._path, address, token)
        if resume:
            size = len(self._body) + len(resume)
            own = b"content-length: %d\r\n%b: %d\r\n" % (size, _RESUME, len(resume))
            return [b"".join((opening, own, trace, self._same)), self._body, resume]
        own = b"content-length: %d\r\nx-paceline-deadline-ms: %d\r\n" % (len(self._body), deadline_ms)
        return [b"".join((opening, own, trace, self._same)), self._body]


@lru_cache(maxsize=1024)
def _opening(path: str, address: Address, token: str) -> bytes:
    """The first lines: the same for all requests to a worker while a token is valid."""
    host, port = address
    return f"POST {path} HTTP/1.1\r\nhost: {host}:{port}\r\nx-paceline-internal-token: {token}\r\n".encode()


@lru_cache(maxsize=1024)
def _standing(request_class: RequestClass, tenant: str, tpot_s: float) -> bytes:
    """The lines that all requests of a tenant in a class share."""
    promise = round(tpot_s * 1000)
    pace = f"x-paceline-tpot-ms: {promise}\r\n" if promise else ""
    lines = f"content-type: application/json\r\nx-paceline-class: {request_class}\r\nx-paceline-tenant: {tenant}\r\n"
    return (lines + pace).encode()

"""All errors: one table of the clients' errors, one short tree of exceptions, the HTTP answer to each.

The table (DESIGN 5) has every answer that is not a success, with everything that a client may rely on. Docs and tests
are generated from it; nothing else decides a status, a type or whether a retry can help.

PacelineError
├── InvalidInput     a manifest, a configuration file or a flag is wrong: names the field and the fix
├── NotFound         a named object does not exist
├── Conflict         another writer changed or holds it
├── Unreachable      the other side did not answer in time
│   └── Unauthorized  the API server does not accept our credentials
├── ApiError         the API server refuses a request: status, its reason, its message
│   └── Forbidden    this process lacks a permission: the message names verb and resource
└── RequestError     a client's request ends with a row of the error table

With a wait beyond `MAX_RETRY_S` the answer says that a retry does not help: OpenAI's clients do not wait longer, but
would retry within seconds.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from paceline_core.registry.enums import Outcome


class Code(StrEnum):
    """The reason, as in logs, metrics and `error.code`."""

    INVALID_JSON = "invalid_json"
    INVALID_REQUEST = "invalid_request"
    CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded"
    INVALID_API_KEY = "invalid_api_key"
    CLASS_FORBIDDEN = "class_forbidden"
    MODEL_NOT_FOUND = "model_not_found"
    ROUTE_NOT_FOUND = "route_not_found"
    METHOD_NOT_ALLOWED = "method_not_allowed"
    REQUEST_TIMEOUT = "request_timeout"
    REQUEST_TOO_LARGE = "request_too_large"
    HEADERS_TOO_LARGE = "headers_too_large"
    RATE_LIMIT_EXCEEDED = "rate_limit_exceeded"
    INSUFFICIENT_QUOTA = "insufficient_quota"
    CLIENT_CLOSED = "client_closed"
    CLIENT_STALLED = "client_stalled"
    """The client read nothing for too long, and was disconnected."""
    ENGINE_FAILED = "engine_failed"
    UPSTREAM_ERROR = "upstream_error"
    NO_CAPACITY = "no_capacity"
    QUOTA_UNAVAILABLE = "quota_unavailable"
    QUEUE_FULL = "queue_full"
    DRAINING = "draining"
    HELD_TIMEOUT = "held_timeout"
    UPSTREAM_TIMEOUT = "upstream_timeout"
    STREAM_LOST = "stream_lost"
    REQUEST_ISOLATED = "request_isolated"
    """Two workers died of the request; no other worker gets it."""
    INTERNAL_ERROR = "internal_error"


class RetryAfter(StrEnum):
    """The source of an answer's `retry-after`."""

    NONE = "none"
    QUOTA = "quota"
    CAPACITY = "capacity"


class ErrorTiming(StrEnum):
    """When the error can happen, relative to the first byte of the answer."""

    BEFORE = "before"
    AFTER = "after"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class ErrorSpec:
    """One row of the table. `status` is HTTP's; `type` is OpenAI's `error.type`."""

    status: int
    type: str
    outcome: Outcome
    should_retry: bool
    retry_after: RetryAfter = RetryAfter.NONE
    moment: ErrorTiming = ErrorTiming.BEFORE


_INVALID = "invalid_request_error"
_RATE = "rate_limit_error"
_SERVER = "server_error"
_CLIENT = Outcome.CLIENT_ERROR

ERRORS: Mapping[Code, ErrorSpec] = {
    Code.INVALID_JSON: ErrorSpec(400, _INVALID, _CLIENT, False),
    Code.INVALID_REQUEST: ErrorSpec(400, _INVALID, _CLIENT, False, moment=ErrorTiming.BOTH),
    Code.CONTEXT_LENGTH_EXCEEDED: ErrorSpec(400, _INVALID, _CLIENT, False),
    Code.INVALID_API_KEY: ErrorSpec(401, "authentication_error", _CLIENT, False),
    Code.CLASS_FORBIDDEN: ErrorSpec(403, "permission_error", _CLIENT, False),
    Code.MODEL_NOT_FOUND: ErrorSpec(404, _INVALID, _CLIENT, False),
    Code.ROUTE_NOT_FOUND: ErrorSpec(404, _INVALID, _CLIENT, False),
    Code.METHOD_NOT_ALLOWED: ErrorSpec(405, _INVALID, _CLIENT, False),
    Code.REQUEST_TIMEOUT: ErrorSpec(408, _INVALID, _CLIENT, True),
    Code.REQUEST_TOO_LARGE: ErrorSpec(413, _INVALID, _CLIENT, False),
    Code.HEADERS_TOO_LARGE: ErrorSpec(431, _INVALID, _CLIENT, False),
    Code.RATE_LIMIT_EXCEEDED: ErrorSpec(429, _RATE, Outcome.QUOTA, True, RetryAfter.QUOTA),
    Code.INSUFFICIENT_QUOTA: ErrorSpec(429, "insufficient_quota", Outcome.QUOTA, False),
    Code.CLIENT_CLOSED: ErrorSpec(499, _INVALID, Outcome.CANCELLED, False, moment=ErrorTiming.BOTH),
    Code.CLIENT_STALLED: ErrorSpec(499, _INVALID, Outcome.CANCELLED, False, moment=ErrorTiming.AFTER),
    Code.INTERNAL_ERROR: ErrorSpec(500, _SERVER, Outcome.UPSTREAM_ERROR, True, moment=ErrorTiming.BOTH),
    Code.REQUEST_ISOLATED: ErrorSpec(500, _SERVER, Outcome.UPSTREAM_ERROR, False, moment=ErrorTiming.BOTH),
    Code.ENGINE_FAILED: ErrorSpec(500, _SERVER, Outcome.UPSTREAM_ERROR, True, moment=ErrorTiming.BOTH),
    Code.UPSTREAM_ERROR: ErrorSpec(502, _SERVER, Outcome.UPSTREAM_ERROR, True),
    Code.NO_CAPACITY: ErrorSpec(503, _SERVER, Outcome.SHED, True, RetryAfter.CAPACITY),
    Code.QUOTA_UNAVAILABLE: ErrorSpec(503, _SERVER, Outcome.SHED, True, RetryAfter.CAPACITY),
    Code.QUEUE_FULL: ErrorSpec(503, _SERVER, Outcome.SHED, True, RetryAfter.CAPACITY),
    Code.DRAINING: ErrorSpec(503, _SERVER, Outcome.SHED, True, RetryAfter.CAPACITY),
    Code.HELD_TIMEOUT: ErrorSpec(504, "timeout_error", Outcome.TIMEOUT, True),
    Code.UPSTREAM_TIMEOUT: ErrorSpec(504, "timeout_error", Outcome.TIMEOUT, True, moment=ErrorTiming.BOTH),
    Code.STREAM_LOST: ErrorSpec(502, _SERVER, Outcome.STREAM_ERROR, True, moment=ErrorTiming.AFTER),
}


class PacelineError(Exception):
    """Root of all errors that paceline raises on purpose; its text may be shown to users."""


class InvalidInput(PacelineError):
    """`field` is a path such as `spec.pools[0].name`; the message says what is wrong and how to fix it."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.field = field
        self.message = message


class NotFound(PacelineError):
    """A named object does not exist."""


class Conflict(PacelineError):
    """The object has changed since it was read, or belongs to another owner."""


class Unreachable(PacelineError):
    """The other side did not answer within its limit."""


class Unauthorized(Unreachable):
    """The API server does not accept our credentials; renewing them may help."""


class ApiError(PacelineError):
    """The API server refused. `status` is HTTP's, `reason` its CamelCase word; `retry_after` in seconds, if sent."""

    def __init__(self, status: int, reason: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after


class Forbidden(ApiError):
    """A permission is missing; the message names user, verb and resource."""


class RequestError(PacelineError):
    """Ends one request. `param` names the request's field, `retry_after` is in seconds.

    `headers` are those that HTTP requires with this status, such as `allow`.
    """

    def __init__(
        self,
        code: Code,
        message: str,
        *,
        param: str | None = None,
        retry_after: float | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.param = param
        self.retry_after = retry_after
        self.headers = headers

    @property
    def row(self) -> ErrorSpec:
        return ERRORS[self.code]


MAX_RETRY_S = 60.0
ANTHROPIC = "/v1/messages"
"""The errors of this route and of the routes below it have Anthropic's form."""
RESPONSES = "/v1/responses"
"""In a stream of this route an error is an event with a type and a number."""
LAST_NUMBER = (1 << 31) - 1
"""The number of the last event of a stream whose other numbers are unknown; some clients read 32 bits."""
_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
_NAMED = b"event: error\n"
MESSAGE = 4096
"""The most characters of a message: a client's own text is not sent back in megabytes."""


@dataclass(frozen=True, slots=True)
class ErrorResponse:
    """A complete HTTP answer. `event` is the same error as one SSE event, for use after the first byte."""

    status: int
    headers: dict[str, str]
    body: bytes
    named: bytes = b""
    """The event's name line, on routes with named events."""
    event_body: bytes = b""
    """The event's data, if different from the body."""

    @property
    def event(self) -> bytes:
        """`data: {...}` and the `[DONE]` after it, so that clients read the error and stop cleanly."""
        return self.named + b"data: " + (self.event_body or self.body) + b"\n\ndata: [DONE]\n\n"


def error_response(error: Exception, path: str = "") -> ErrorResponse:
    """Map any exception, in the form that the clients of this route expect.

    One that is not a RequestError becomes `internal_error` without its text.
    """
    if not isinstance(error, RequestError):
        error = RequestError(Code.INTERNAL_ERROR, "The server failed to handle the request; it has been logged.")
    row = error.row
    retry = row.should_retry and (error.retry_after or 0.0) <= MAX_RETRY_S
    headers = {"content-type": "application/json", "x-should-retry": "true" if retry else "false"}
    headers.update(error.headers)
    if error.retry_after is not None:
        headers["retry-after"] = str(max(1, math.ceil(error.retry_after)))
        headers["retry-after-ms"] = str(max(1, math.ceil(error.retry_after * 1000)))
    words = error.message if len(error.message) <= MESSAGE else f"{error.message[:MESSAGE]}..."
    detail = {"message": words, "type": row.type, "param": error.param, "code": str(error.code)}
    if path == ANTHROPIC or path.startswith(f"{ANTHROPIC}/"):
        detail["type"] = _ANTHROPIC_TYPES.get(row.status, "api_error" if row.status >= 500 else "invalid_request_error")
        return ErrorResponse(row.status, headers, _json({"type": "error", "error": detail}), _NAMED)
    body = _json({"error": detail})
    if path == RESPONSES:
        event = {"error": detail, **detail, "type": "error", "sequence_number": LAST_NUMBER}
        return ErrorResponse(row.status, headers, body, _NAMED, _json(event))
    return ErrorResponse(row.status, headers, body)


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()

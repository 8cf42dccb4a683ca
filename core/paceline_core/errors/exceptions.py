"""The exceptions of paceline, and the HTTP answer to each: status, headers, OpenAI error object.

PacelineError
├── InvalidInput     a manifest, a configuration file or a flag is wrong: names the field and the fix
├── NotFound         a named object does not exist
├── Conflict         another writer changed or holds it
├── Unreachable      the other side did not answer in time
│   └── Unauthorized  the API server does not accept our credentials
├── ApiError         the API server refuses a request: status, its reason, its words
│   └── Forbidden    this process may not: the words name verb and resource
└── RequestError     a client's request ends with a row of the error table

With a wait beyond `MAX_RETRY_S` the answer says that a retry does not help: OpenAI's clients do not wait longer, but
would ask again within seconds.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from paceline_core.errors.table import ERRORS, Code, ErrorSpec


class PacelineError(Exception):
    """Root of all errors that paceline raises on purpose; its text is fit for a user's eyes."""


class InvalidInput(PacelineError):
    """`field` is a path such as `spec.pools[0].name`; the message says what is wrong and how to fix it."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.field = field
        self.message = message


class NotFound(PacelineError):
    """A named object does not exist."""


class Conflict(PacelineError):
    """The object changed in between, or belongs to another owner."""


class Unreachable(PacelineError):
    """The other side did not answer within its limit."""


class Unauthorized(Unreachable):
    """The API server does not accept our credentials; it may again when they are renewed."""


class ApiError(PacelineError):
    """The API server refused. `status` is HTTP's, `reason` its CamelCase word; `retry_after` in seconds, if sent."""

    def __init__(self, status: int, reason: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after


class Forbidden(ApiError):
    """A right is missing; the message names user, verb and resource."""


class RequestError(PacelineError):
    """Ends one request. `param` names the request's field, `retry_after` is in seconds.

    `headers` are what HTTP requires beside this status, such as `allow`.
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
"""The errors of this route, and of those below it, have Anthropic's form."""
RESPONSES = "/v1/responses"
"""In a stream of this route an error is an event with a type and a number."""
LAST_NUMBER = (1 << 31) - 1
"""The number of an event that ends a stream whose other numbers are not known; some clients read 32 bits."""
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
"""Characters: what a client sent is not sent back to it by the megabyte."""


@dataclass(frozen=True, slots=True)
class ErrorResponse:
    """A whole HTTP answer. `event` is the same error as one SSE event, for use after the first byte."""

    status: int
    headers: dict[str, str]
    body: bytes
    named: bytes = b""
    """The line that names its event, on routes whose clients go by names."""
    event_body: bytes = b""
    """What the event holds, where that is not the body."""

    @property
    def event(self) -> bytes:
        """`data: {...}` and the `[DONE]` after it: clients read the error and stop cleanly."""
        return self.named + b"data: " + (self.event_body or self.body) + b"\n\ndata: [DONE]\n\n"


def error_response(error: Exception, path: str = "") -> ErrorResponse:
    """Map any exception, in the form that the clients of this route read.

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

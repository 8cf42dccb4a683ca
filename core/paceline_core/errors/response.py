"""Map an error to an HTTP answer: status, headers, OpenAI error object.

With a wait beyond `MAX_RETRY_S` the answer says that a retry does not help: OpenAI's clients do not wait longer, but
would ask again within seconds.
"""

import json
import math
from dataclasses import dataclass

from paceline_core.errors.exceptions import RequestError
from paceline_core.errors.table import Code

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

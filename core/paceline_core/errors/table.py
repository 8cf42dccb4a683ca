"""The error table (DESIGN 5): every answer that is not a success, with all that a client may rely on.

Docs and tests are generated from it; nothing else decides a status, a type or whether a retry can help.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from paceline_core.registry.enums import Outcome


class Code(StrEnum):
    """The reason, as logs, metrics and `error.code` name it."""

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
    """It read nothing for too long, and was disconnected."""
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
    """Two workers died of it; it is given to no other."""
    INTERNAL_ERROR = "internal_error"


class RetryAfter(StrEnum):
    """Where the `retry-after` of an answer comes from."""

    NONE = "none"
    QUOTA = "quota"
    CAPACITY = "capacity"


class ErrorTiming(StrEnum):
    """When the error can happen, seen from the first byte of the answer."""

    BEFORE = "before"
    AFTER = "after"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class ErrorSpec:
    """One line of the table. `status` is HTTP's; `type` is OpenAI's `error.type`."""

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

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
    """It read nothing for too long, and was cut."""
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


class Moment(StrEnum):
    """When the error can happen, seen from the first byte of the answer."""

    BEFORE = "before"
    AFTER = "after"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """One line of the table. `status` is HTTP's; `type` is OpenAI's `error.type`."""

    status: int
    type: str
    outcome: Outcome
    should_retry: bool
    retry_after: RetryAfter = RetryAfter.NONE
    moment: Moment = Moment.BEFORE


_INVALID = "invalid_request_error"
_RATE = "rate_limit_error"
_SERVER = "server_error"
_CLIENT = Outcome.CLIENT_ERROR

ERRORS: Mapping[Code, ErrorRow] = {
    Code.INVALID_JSON: ErrorRow(400, _INVALID, _CLIENT, False),
    Code.INVALID_REQUEST: ErrorRow(400, _INVALID, _CLIENT, False, moment=Moment.BOTH),
    Code.CONTEXT_LENGTH_EXCEEDED: ErrorRow(400, _INVALID, _CLIENT, False),
    Code.INVALID_API_KEY: ErrorRow(401, "authentication_error", _CLIENT, False),
    Code.CLASS_FORBIDDEN: ErrorRow(403, "permission_error", _CLIENT, False),
    Code.MODEL_NOT_FOUND: ErrorRow(404, _INVALID, _CLIENT, False),
    Code.ROUTE_NOT_FOUND: ErrorRow(404, _INVALID, _CLIENT, False),
    Code.METHOD_NOT_ALLOWED: ErrorRow(405, _INVALID, _CLIENT, False),
    Code.REQUEST_TIMEOUT: ErrorRow(408, _INVALID, _CLIENT, True),
    Code.REQUEST_TOO_LARGE: ErrorRow(413, _INVALID, _CLIENT, False),
    Code.HEADERS_TOO_LARGE: ErrorRow(431, _INVALID, _CLIENT, False),
    Code.RATE_LIMIT_EXCEEDED: ErrorRow(429, _RATE, Outcome.QUOTA, True, RetryAfter.QUOTA),
    Code.INSUFFICIENT_QUOTA: ErrorRow(429, "insufficient_quota", Outcome.QUOTA, False),
    Code.CLIENT_CLOSED: ErrorRow(499, _INVALID, Outcome.CANCELLED, False, moment=Moment.BOTH),
    Code.CLIENT_STALLED: ErrorRow(499, _INVALID, Outcome.CANCELLED, False, moment=Moment.AFTER),
    Code.INTERNAL_ERROR: ErrorRow(500, _SERVER, Outcome.UPSTREAM_ERROR, True, moment=Moment.BOTH),
    Code.REQUEST_ISOLATED: ErrorRow(500, _SERVER, Outcome.UPSTREAM_ERROR, False, moment=Moment.BOTH),
    Code.ENGINE_FAILED: ErrorRow(500, _SERVER, Outcome.UPSTREAM_ERROR, True, moment=Moment.BOTH),
    Code.UPSTREAM_ERROR: ErrorRow(502, _SERVER, Outcome.UPSTREAM_ERROR, True),
    Code.NO_CAPACITY: ErrorRow(503, _SERVER, Outcome.SHED, True, RetryAfter.CAPACITY),
    Code.QUOTA_UNAVAILABLE: ErrorRow(503, _SERVER, Outcome.SHED, True, RetryAfter.CAPACITY),
    Code.QUEUE_FULL: ErrorRow(503, _SERVER, Outcome.SHED, True, RetryAfter.CAPACITY),
    Code.DRAINING: ErrorRow(503, _SERVER, Outcome.SHED, True, RetryAfter.CAPACITY),
    Code.HELD_TIMEOUT: ErrorRow(504, "timeout_error", Outcome.TIMEOUT, True),
    Code.UPSTREAM_TIMEOUT: ErrorRow(504, "timeout_error", Outcome.TIMEOUT, True, moment=Moment.BOTH),
    Code.STREAM_LOST: ErrorRow(502, _SERVER, Outcome.STREAM_ERROR, True, moment=Moment.AFTER),
}

"""Everything that can go wrong: one table for clients' answers, one short tree of exceptions."""

from paceline_core.errors.exceptions import (
    ApiError,
    Conflict,
    ErrorResponse,
    Forbidden,
    InvalidInput,
    NotFound,
    PacelineError,
    RequestError,
    Unauthorized,
    Unreachable,
    error_response,
)
from paceline_core.errors.table import ERRORS, Code, ErrorSpec, ErrorTiming, RetryAfter

__all__ = [
    "ERRORS",
    "ApiError",
    "Code",
    "Conflict",
    "ErrorResponse",
    "ErrorSpec",
    "ErrorTiming",
    "Forbidden",
    "InvalidInput",
    "NotFound",
    "PacelineError",
    "RequestError",
    "RetryAfter",
    "Unauthorized",
    "Unreachable",
    "error_response",
]

"""Everything that can go wrong: one table for clients' answers, one short tree of exceptions."""

from paceline_core.errors.answer import Answer, answer
from paceline_core.errors.table import ERRORS, Code, ErrorRow, Moment, RetryAfter
from paceline_core.errors.tree import (
    Conflict,
    Forbidden,
    InvalidInput,
    NotFound,
    PacelineError,
    Refused,
    RequestError,
    Unauthorized,
    Unreachable,
)

__all__ = [
    "ERRORS",
    "Answer",
    "Code",
    "Conflict",
    "ErrorRow",
    "Forbidden",
    "InvalidInput",
    "Moment",
    "NotFound",
    "PacelineError",
    "Refused",
    "RequestError",
    "RetryAfter",
    "Unauthorized",
    "Unreachable",
    "answer",
]

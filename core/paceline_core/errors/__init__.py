"""Everything that can go wrong: one table for clients' answers, one short tree of exceptions."""

from paceline_core.errors.answer import Answer, answer
from paceline_core.errors.table import ERRORS, Code, ErrorRow, Moment, RetryAfter
from paceline_core.errors.tree import Conflict, InvalidInput, NotFound, PacelineError, RequestError, Unreachable

__all__ = [
    "ERRORS",
    "Answer",
    "Code",
    "Conflict",
    "ErrorRow",
    "InvalidInput",
    "Moment",
    "NotFound",
    "PacelineError",
    "RequestError",
    "RetryAfter",
    "Unreachable",
    "answer",
]

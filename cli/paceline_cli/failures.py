"""Errors as a user reads them: `error: field: message (fix)`, never a stack trace unless it is asked for."""

import os
import traceback
from typing import TextIO

from paceline_core.errors import InvalidInput, PacelineError

LEVEL_VARIABLE = "PACELINE_LOG_LEVEL"
FAILED, BAD_INPUT = 1, 2


def explain(error: Exception, stream: TextIO) -> int:
    """Write the error; the exit status that goes with it."""
    error = _named(error)
    if not isinstance(error, PacelineError):
        stream.write(f"error: unexpected: {type(error).__name__}: {error} (paceline --debug shows where)\n")
    else:
        for line in str(error).splitlines():
            stream.write(line if line.startswith(" ") else f"error: {line}")
            stream.write("\n")
    if os.environ.get(LEVEL_VARIABLE, "").upper() == "DEBUG":
        stream.write("".join(traceback.format_exception(error)))
    return BAD_INPUT if isinstance(error, InvalidInput) else FAILED


def _named(error: Exception) -> Exception:
    """A path that the system refuses is the user's input like any other; its trace stays with it."""
    if not isinstance(error, OSError) or error.filename is None:
        return error
    path = os.fsdecode(error.filename)
    reason = "it is not a folder" if isinstance(error, FileExistsError) else error.strerror
    refused = InvalidInput(path, f"cannot be used: {reason}; choose another folder with --state")
    return refused.with_traceback(error.__traceback__)

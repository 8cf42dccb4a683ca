"""Errors as a user reads them: `error: field: message (fix)`, never a stack trace unless it is asked for."""

import errno
import os
import traceback
from typing import TextIO

from paceline_core.errors import InvalidInput, PacelineError

LEVEL_VARIABLE = "PACELINE_LOG_LEVEL"
FAILED, BAD_INPUT = 1, 2
_MAX_LINES = 100
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def explain(error: Exception, stream: TextIO) -> int:
    """Write the error; the exit status that goes with it."""
    error = _named(error)
    if not isinstance(error, PacelineError):
        stream.write(f"error: unexpected: {type(error).__name__}: {error} (paceline --debug shows where)\n")
    else:
        lines = str(error).splitlines()
        for line in lines[:_MAX_LINES]:
            stream.write(line if line.startswith(" ") else f"error: {line}")
            stream.write("\n")
        if len(lines) > _MAX_LINES:
            stream.write(f"error: {len(lines) - _MAX_LINES} more like these\n")
    if os.environ.get(LEVEL_VARIABLE, "").upper() == "DEBUG":
        stream.write("".join(traceback.format_exception(error)))
    return BAD_INPUT if isinstance(error, InvalidInput) else FAILED


def _named(error: Exception) -> Exception:
    """A path that the system refuses is the user's input like any other; its trace stays with it."""
    if not isinstance(error, OSError):
        return error
    if error.filename is None:
        return _unwritten(error) if error.errno in _NO_ROOM else error
    path = os.fsdecode(error.filename)
    reason = "it is not a folder" if isinstance(error, FileExistsError) else error.strerror
    refused = InvalidInput(path, f"cannot be used: {reason}; choose another folder with --state")
    return refused.with_traceback(error.__traceback__)


def _unwritten(error: OSError) -> PacelineError:
    """A write tells no path: mostly it is where the output goes."""
    return PacelineError(f"the output or a file cannot be written: {error.strerror}").with_traceback(
        error.__traceback__
    )

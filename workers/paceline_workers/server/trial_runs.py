"""Trials: a worker runs only one request at a time that may have ended a worker before, whichever gateway sends it.

A gateway names such a suspect in the header SUSPECT, with the number of tokens that clear it. Until the suspect has
produced these or has ended, the worker refuses a second one with 503 and the same header, and the gateway sends that
one elsewhere. The load report names the cleared suspects, because an answer that is not streamed shows no tokens before
its end. Invariant: at most one trial is open.
"""

import contextlib
import re
from collections.abc import Callable, Iterator

from paceline_core.errors import Code, RequestError
from paceline_core.wire import SUSPECT

CLEARED = 8
"""How many names of cleared suspects a load report holds: the last ones."""
RETRY_S = 0.1
_NAME = re.compile(r"([\x21-\x3a\x3c-\x7e]{1,200});(\d{1,4})")


class TrialRun:
    """The trial of one request; it needs `left` more tokens to be cleared, 0 if it is not a suspect."""

    def __init__(self, left: int, clear: Callable[[], None]) -> None:
        self.left = left
        self._clear = clear

    def brought(self, tokens: int) -> None:
        """Count tokens that the request has produced."""
        if self.left and tokens:
            self.left = max(self.left - tokens, 0)
            if not self.left:
                self._clear()


class TrialRuns:
    """The trials of a worker. `on_cleared` gets the names of the last cleared suspects, oldest first."""

    def __init__(self, on_cleared: Callable[[tuple[str, ...]], None] = lambda _: None) -> None:
        self._on_cleared = on_cleared
        self._open: TrialRun | None = None
        self._cleared: tuple[str, ...] = ()

    @contextlib.contextmanager
    def entered(self, suspect: str) -> Iterator[TrialRun]:
        """The request runs for the length of the block; `suspect` is its header. Raises RequestError `no_capacity`."""
        match = _NAME.fullmatch(suspect)
        if match is None:
            yield TrialRun(0, lambda: None)
            return
        if self._open is not None:
            message = "A request that a worker may have died of is on trial here, and one is enough; retry."
            raise RequestError(Code.NO_CAPACITY, message, retry_after=RETRY_S, headers={SUSPECT: "busy"})
        trial = self._open = TrialRun(int(match[2]), lambda: self._clear(trial, match[1]))
        try:
            yield trial
        finally:
            self._end(trial)

    def _clear(self, trial: TrialRun, name: str) -> None:
        self._end(trial)
        self._cleared = (*self._cleared, name)[-CLEARED:]
        self._on_cleared(self._cleared)

    def _end(self, trial: TrialRun) -> None:
        if self._open is trial:
            self._open = None

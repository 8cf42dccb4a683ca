"""One suspect at a time, whichever gateway sends it: requests that a worker may have died of (the gateways' suspicion).

A gateway names such a request in SUSPECT, with the tokens that clear it. Until it has brought these, or has ended, a
second one is refused with 503 and the same header, and goes elsewhere. The load stream tells who has been cleared: of
an answer that does not stream nobody else could know. Invariant: at most one trial is open.
"""

import contextlib
import re
from collections.abc import Callable, Iterator

from paceline_core.errors import Code, RequestError
from paceline_core.wire import SUSPECT

CLEARED = 8
"""Of the last ones the names are told."""
RETRY_S = 0.1
_NAME = re.compile(r"([\x21-\x3a\x3c-\x7e]{1,200});(\d{1,4})")


class Trial:
    """One request's; `left` tokens clear it, 0 if it is no suspect."""

    def __init__(self, left: int, clear: Callable[[], None]) -> None:
        self._left = left
        self._clear = clear

    def brought(self, tokens: int) -> None:
        """It has so many tokens more."""
        if self._left and tokens:
            self._left = max(self._left - tokens, 0)
            if not self._left:
                self._clear()


class Trials:
    """A worker's. `on_cleared` hears the names of the last that were cleared, oldest first."""

    def __init__(self, on_cleared: Callable[[tuple[str, ...]], None] = lambda _: None) -> None:
        self._on_cleared = on_cleared
        self._open = ""
        self._cleared: tuple[str, ...] = ()

    @contextlib.contextmanager
    def entered(self, suspect: str) -> Iterator[Trial]:
        """For the length of the block this request runs; `suspect` is its header. Raises RequestError `no_capacity`."""
        told = _NAME.fullmatch(suspect)
        if told is None:
            yield Trial(0, lambda: None)
            return
        name = told[1]
        if self._open:
            message = "A request that a worker may have died of is on trial here, and one is enough; retry."
            raise RequestError(Code.NO_CAPACITY, message, retry_after=RETRY_S, headers={SUSPECT: "busy"})
        self._open = name
        try:
            yield Trial(int(told[2]), lambda: self._clear(name))
        finally:
            self._end(name)

    def _clear(self, name: str) -> None:
        self._end(name)
        self._cleared = (*self._cleared, name)[-CLEARED:]
        self._on_cleared(self._cleared)

    def _end(self, name: str) -> None:
        if self._open == name:
            self._open = ""

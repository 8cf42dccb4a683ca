"""How much work clients' bytes may cause in one turn of the event loop, so that streams are served in between.

A unit is about a microsecond: eight bytes of heads and chunk sizes, a KiB of body; a request is a hundred. A connection
that finds nothing left stops reading and gets its place in a line. The next turn serves the line first, each connection
as far as the budget goes. So a turn costs at most TURN and the one step that overdrew it, however many clients send.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

TURN = 10_000
SLICE = 64 << 10
"""Bytes of one connection that are looked at in one go."""
REQUEST = 100
FRAMING_BYTES = 8
BODY_BYTES = 1024
PARSED_BYTES = 128
"""Bytes of a whole body that cost a unit to judge."""


class LoopBudget:
    """The budget of one server. Callers take from `left`; a turn ends only where none is left."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], Any]) -> None:
        self.left = TURN
        self.turns = 0
        """Times that it was used up."""
        self._call_soon = call_soon
        self._line: deque[Callable[[], None]] = deque()
        self._called = False

    def wait(self, step: Callable[[], None]) -> None:
        """Call this in a later turn, after those who wait already."""
        self._line.append(step)
        if not self._called:
            self._called = True
            self._call_soon(self._next)

    def _next(self) -> None:
        self.left, self._called = TURN, False
        self.turns += 1
        for _ in range(len(self._line)):
            if self.left <= 0:
                break
            self._line.popleft()()
        if self._line:
            self.left = min(self.left, 0)
            if not self._called:
                self._called = True
                self._call_soon(self._next)

"""Bounds on what clients may cause: work in a turn of the event loop, shared amounts, unread bytes.

The loop's budget lets streams be served in between. A unit is about a microsecond: eight bytes of heads and chunk
sizes, a KiB of body; a request is a hundred. A connection that finds no budget left stops reading and joins a line. The
next turn serves the line first, each connection as far as the budget goes. So a turn costs at most TURN and the one
step that overdrew it, however many clients send.

Bytes of bodies and requests being answered are amounts that clients share. A holder may have at most SHARE times what
is free (a dynamic threshold, as in the packet buffers of switches): one holder alone gets 8/9 of all, two get 8/17
each, and the next one always finds some left. Nothing that is held is taken away. `least` is what one holder may always
have while it fits at all: one body.

A connection whose bytes wait because the budget was used up reads nothing meanwhile; the waiting bytes count in the
memory of bodies for its holder. They are one packet at most: what the event loop delivers at once.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

TURN = 10_000
SLICE = 64 << 10
"""Bytes of one connection that are processed at once."""
REQUEST = 100
FRAMING_BYTES = 8
BODY_BYTES = 1024
PARSED_BYTES = 128
"""Bytes of a body that cost one unit."""
SHARE = 8


class LoopBudget:
    """The budget of one server. Callers subtract from `left`; a turn ends only when none is left."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], Any]) -> None:
        self.left = TURN
        self.turns = 0
        """How often it was used up."""
        self._call_soon = call_soon
        self._line: deque[Callable[[], None]] = deque()
        self._called = False

    def wait(self, step: Callable[[], None]) -> None:
        """Call `step` in a later turn, after those that wait already."""
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


class SharedLimit:
    """Amounts by holder: a tenant's name, or an address before a key was shown."""

    def __init__(self, limit: int, least: int | None = None) -> None:
        self._limit = limit
        self._least = limit if least is None else least
        self._held: dict[str, int] = {}
        self.used = 0
        self.refused = 0
        """How often something did not fit."""

    def take(self, holder: str, amount: int) -> bool:
        """Add an amount; False, and nothing is added, if it does not fit."""
        free = self._limit - self.used
        own = self._held.get(holder, 0) + amount
        if amount > free or (own > self._least and own > SHARE * free):
            self.refused += 1
            return False
        if amount:
            self._held[holder] = own
            self.used += amount
        return True

    def give(self, holder: str, amount: int) -> None:
        """Subtract an amount."""
        if amount:
            self.used -= amount
            self._held[holder] -= amount
            if not self._held[holder]:
                del self._held[holder]


class UnreadBuffer:
    """`go_on` is called in a later turn, unless the connection is closed by then."""

    __slots__ = ("_budget", "_data", "_go_on", "_holder", "_memory", "_transport")

    def __init__(self, budget: LoopBudget, memory: SharedLimit, go_on: Callable[[bytes], None]) -> None:
        self._budget = budget
        self._memory = memory
        self._go_on = go_on
        self._data: bytes | None = None
        self._holder = ""
        self._transport: asyncio.Transport | None = None

    @property
    def waits(self) -> bool:
        """A later turn is scheduled."""
        return self._data is not None

    def put(self, data: bytes, holder: str, transport: asyncio.Transport) -> None:
        """Keep data for a later turn. The connection is cut if its holder may keep no more."""
        holder = self._holder if self._data else holder
        if not self._memory.take(holder, len(data)):
            transport.abort()
            return
        self._holder, waited = holder, self.waits
        self._data = (self._data or b"") + data
        if not waited:
            self._transport = transport
            transport.pause_reading()
            self._budget.wait(self._next)

    def _next(self) -> None:
        data, self._data = self._data or b"", None
        transport, self._transport = self._transport, None
        self._memory.give(self._holder, len(data))
        if transport is not None and not transport.is_closing():
            self._go_on(data)

"""Bounds on what clients may cause: work in a turn of the event loop, amounts they share, bytes not looked at yet.

The loop's budget lets streams be served in between. A unit is about a microsecond: eight bytes of heads and chunk
sizes, a KiB of body; a request is a hundred. A connection that finds nothing left stops reading and gets its place in a
line. The next turn serves the line first, each connection as far as the budget goes. So a turn costs at most TURN and
the one step that overdrew it, however many clients send.

Bytes of bodies and requests being answered are amounts that clients share. A holder may have at most SHARE times what
is left free (a dynamic threshold, as switches use it for their packet buffers): one holder alone gets 8/9 of all, two
get 8/17 each, and whoever comes next finds some left. Nothing that is held is ever taken away. `least` is what one may
always have while it fits at all: one body.

A connection whose bytes wait because the budget was used up reads no more meanwhile; what waits is counted in the
memory of bodies, as its holder's. It is one packet at most: what the event loop hands over in one go.
"""

import asyncio
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
SHARE = 8


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


class SharedLimit:
    """Amounts by holder: a tenant's name, or an address where no key was shown yet."""

    def __init__(self, limit: int, least: int | None = None) -> None:
        self._limit = limit
        self._least = limit if least is None else least
        self._held: dict[str, int] = {}
        self.used = 0
        self.refused = 0
        """Times that something did not fit."""

    def take(self, holder: str, amount: int) -> bool:
        """Count so much in; False, and nothing counted, where it does not fit."""
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
        """Count it out."""
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
        """A later turn has been asked for."""
        return self._data is not None

    def put(self, data: bytes, holder: str, transport: asyncio.Transport) -> None:
        """Keep it for a later turn. A connection whose holder may keep no more is cut."""
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

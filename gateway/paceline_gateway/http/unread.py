"""Bytes that one connection has received and not looked at yet, because the loop's budget was used up.

The connection reads no more meanwhile; what waits is counted in the memory of bodies, as its holder's. It is one packet
at most: what the event loop hands over in one go.
"""

import asyncio
from collections.abc import Callable

from paceline_gateway.http.loop_budget import LoopBudget
from paceline_gateway.http.shared_limit import SharedLimit


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

"""Turns of the loop for long bodies, one body a turn: parsing and checking 8 MB takes tens of ms in one go.

Bodies that arrive together would otherwise be parsed together, and every stream would wait for all of them. Requests
wait for their turn in order of arrival; their bodies stay counted meanwhile (`body.BodyMemory`), whose limit bounds the
queue. Known hole: the work after a body's first wait (the tokenizer's answer) takes no turn.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine
from typing import Any, TypeVar

R = TypeVar("R")


class LoopTurns:
    """The turns of one worker."""

    def __init__(self) -> None:
        self._line: deque[asyncio.Future[None]] = deque()
        self._taken = False

    async def within(self, work: Coroutine[Any, Any, R]) -> R:
        """Await `work`, begun in a turn of its own, and return its result."""
        try:
            await self.take()
            return await work
        finally:
            work.close()

    async def take(self) -> None:
        """Return in a turn of the loop that no other long body has been given."""
        loop = asyncio.get_running_loop()
        if self._taken:
            turn = loop.create_future()
            self._line.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if not turn.cancelled():  # it had been given its turn
                    loop.call_soon(self._next)
                raise
        self._taken = True
        loop.call_soon(self._next)

    def _next(self) -> None:
        """Let the first go that still waits."""
        while self._line:
            turn = self._line.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._taken = False

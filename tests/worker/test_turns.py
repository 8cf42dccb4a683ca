"""Long bodies that are whole together are read one a turn of the loop, in order, whoever of them leaves."""

import asyncio
from typing import Any, cast

from paceline_workers.server.http.exchange import LONG, LoopTurns, RequestExchange, understood

BODIES = 5


class TurnCounter:
    """How often the loop has gone round."""

    def __init__(self) -> None:
        self.count = 0
        self._on = True
        asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        self.count += 1
        if self._on:
            asyncio.get_running_loop().call_soon(self._next)

    def stop(self) -> None:
        """Let the loop rest."""
        self._on = False


class Whole:
    """An exchange whose body is there, and whose client stays."""

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def body(self) -> bytes:
        return self._body

    def release(self) -> None:
        pass

    async def gone(self) -> None:
        await asyncio.Event().wait()


async def begun(sizes: list[int]) -> list[int]:
    """In which turn of the loop each of these bodies was begun."""
    turns, line, found = TurnCounter(), LoopTurns(), list[int]()

    async def make(_: bytes) -> None:
        found.append(turns.count)

    exchanges = [cast("RequestExchange", Whole(bytes(size))) for size in sizes]
    await asyncio.gather(*(understood(exchange, line, make) for exchange in exchanges))
    turns.stop()
    return found


async def test_long_bodies_that_are_whole_together_are_begun_in_turns_of_their_own() -> None:
    found = await begun([LONG + 1] * BODIES)
    assert len(set(found)) == BODIES
    assert found == sorted(found)


async def test_short_bodies_wait_for_nobody() -> None:
    assert len(set(await begun([LONG] * BODIES))) == 1


async def test_who_leaves_the_line_or_its_turn_stops_nobody() -> None:
    turns, order = LoopTurns(), list[int]()

    async def work(number: int) -> Any:
        order.append(number)

    tasks = [asyncio.create_task(turns.within(work(number))) for number in range(BODIES)]
    await asyncio.sleep(0)
    tasks[2].cancel()  # in line
    await tasks[0]
    tasks[1].cancel()  # given its turn, and not awake yet
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order == [0, 3, 4]

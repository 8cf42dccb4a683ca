"""The count of open requests, and draining."""

import asyncio
import contextlib

import pytest

from paceline_core.errors import Code, RequestError
from paceline_workers.server.request_handler import InFlightLimiter


async def test_the_gate_knows_when_everybody_has_gone() -> None:
    gate = InFlightLimiter(2)
    assert await gate.gone(0.0)
    with gate.entered(), gate.entered():
        assert gate.open == 2
        assert not await gate.gone(0.0)
    assert await gate.gone(0.0)


def test_one_too_many_is_told_to_come_back() -> None:
    gate = InFlightLimiter(1)
    with gate.entered(), pytest.raises(RequestError, match="1 requests are open") as caught, gate.entered():
        pass
    assert (caught.value.code, caught.value.retry_after) == (Code.QUEUE_FULL, 1.0)
    assert gate.open == 0


async def test_a_draining_gate_lets_out_but_not_in() -> None:
    gate, leave = InFlightLimiter(2), asyncio.Event()

    async def visit() -> None:
        with gate.entered():
            await leave.wait()

    inside = asyncio.create_task(visit())
    await asyncio.sleep(0)
    gate.drain()
    with pytest.raises(RequestError, match="shutting down") as caught, gate.entered():
        pass
    assert caught.value.code is Code.DRAINING
    leave.set()
    await inside
    assert await gate.gone(0.0)


def test_a_failed_request_leaves_too() -> None:
    gate = InFlightLimiter(1)
    with contextlib.suppress(ValueError), gate.entered():
        raise ValueError
    assert gate.open == 0

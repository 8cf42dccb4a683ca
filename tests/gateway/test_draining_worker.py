"""A worker that drains: nothing more is sent there once the gateway knows, however it learned it, and nobody fails."""

import asyncio
from typing import get_args

import httpx
import pytest
from tests.gateway.crowd import load, more, whole
from tests.gateway.leaver import Leaver, Told
from tests.gateway.stand import STREAM, Stand, until

from paceline_core.wire import WorkerState
from paceline_gateway.routing.worker import Worker

pytestmark = pytest.mark.real


@pytest.mark.parametrize("told", get_args(Told))
async def test_nothing_is_sent_to_it_once_that_is_known(stand: Stand, told: Told) -> None:
    leaving, staying = await Leaver("leaving").start(), await Leaver("staying").start()
    stand.work(leaving, staying)
    await stand.ready(2)
    answers: list[httpx.Response] = []
    async with load(stand, answers):
        await more(lambda: len(leaving.picks))
        leaving.drain(told)
        await until(lambda: _known(stand))
        await more(lambda: len(staying.picks))  # who was on the way has arrived
        before = len(leaving.picks)
        for _ in range(10):
            await more(lambda: len(staying.picks))
        assert len(leaving.picks) == before
        leaving.come_back()
        await more(lambda: len(leaving.picks))
    assert [answer for answer in answers if not whole(answer)] == []
    assert await stand.metric("paceline_retries_total") == 0
    for worker in (leaving, staying):
        await worker.stop()


def _known(stand: Stand) -> bool:
    return _worker(stand).draining or not _worker(stand).connected


def _worker(stand: Stand) -> Worker:
    worker = stand.process.registry.services["default/chat"].pool.workers.get("leaving")
    assert worker is not None
    return worker


async def test_who_refused_is_still_asked_when_nobody_else_is_there(stand: Stand) -> None:
    """Its load stream is silent: it may be back, and cannot say so."""
    only = await Leaver("only").start()
    stand.work(only)
    await stand.ready()
    only.drain("silent")
    asked = asyncio.create_task(stand.client.post("/v1/chat/completions", json=STREAM))
    await until(lambda: bool(only.picks))
    only.serves = True
    assert whole(await asked)
    await only.stop()


async def test_its_last_report_counts(stand: Stand) -> None:
    """A line that was written before it drained may come after its refusal; the next line says so again."""
    leaving = await Leaver("leaving").start()
    stand.work(leaving)
    await stand.ready()
    (worker,) = stand.process.registry.services["default/chat"].pool
    worker.drains = True
    assert worker.draining
    leaving.say(running=1)
    await until(lambda: not worker.draining)
    leaving.say(state=WorkerState.DRAINING)
    await until(lambda: worker.draining)
    await leaving.stop()

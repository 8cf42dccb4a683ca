"""Every worker of a service is replaced within moments, under load: nobody fails, and no retry budget is spent."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial

import httpx
import pytest
from tests.gateway.conftest import MakeWorker
from tests.gateway.crowd import load, more, whole
from tests.gateway.stand import STREAM, Stand, plain_client, until
from tests.gateway.worker_double import REFUSAL, Script, WorkerDouble

from paceline_core.wire import WorkerState
from paceline_gateway.request.attempts import MIN_RETRIES

pytestmark = pytest.mark.real
CROWD = MIN_RETRIES + 50
SLOW = Script(delay_s=0.02)


async def refuse(worker: WorkerDouble) -> None:
    """It drains, and its load stream has not said so yet."""
    worker.script = lambda _: REFUSAL


async def vanish(worker: WorkerDouble) -> None:
    """It has ended, and the cluster does not know yet."""
    await worker.stop()


@pytest.mark.parametrize("end", [refuse, vanish])
async def test_requests_wait_for_the_new_workers_however_often_the_old_ones_refuse(
    stand: Stand, make_worker: MakeWorker, end: Callable[[WorkerDouble], Awaitable[None]]
) -> None:
    old = [await make_worker(f"old-{n}", slots=CROWD) for n in range(3)]
    stand.work(*old)
    await stand.ready(3)
    await stand.client.post("/v1/chat/completions", json=STREAM)  # a kept connection is there to be broken
    for worker in old:
        await end(worker)
    headers, limits = {"authorization": f"Bearer {stand.key}"}, httpx.Limits(max_connections=None)
    async with plain_client(base_url=stand.client.base_url, headers=headers, limits=limits) as crowd:
        posts = [asyncio.create_task(crowd.post("/v1/chat/completions", json=STREAM)) for _ in range(CROWD)]
        await until(lambda: _held(stand))
        new = [await make_worker(f"new-{n}", slots=CROWD) for n in range(3)]
        stand.work(*new)
        assert [whole(response) for response in await asyncio.gather(*posts)] == [True] * CROWD
    assert await stand.metric("paceline_retries_total") == 0
    assert sum(len(worker.seen) for worker in new) == CROWD


async def _held(stand: Stand) -> bool:
    return bool((await stand.queue())["held"] == CROWD)


async def test_one_after_another_is_drained_and_replaced_while_clients_go_on(
    stand: Stand, make_worker: MakeWorker
) -> None:
    workers = [await make_worker(f"old-{n}", slots=8) for n in range(3)]
    for worker in workers:
        worker.script = lambda _: SLOW
    stand.work(*workers)
    await stand.ready(3)
    answers: list[httpx.Response] = []
    async with load(stand, answers, clients=12):
        for n in range(3):
            leaving, new = workers.pop(0), await make_worker(f"new-{n}", slots=8)
            new.script = lambda _: SLOW
            workers.append(new)
            leaving.script = lambda _: REFUSAL
            await more(lambda: len(answers))
            leaving.say(state=WorkerState.DRAINING)
            stand.cluster.serve(
                "default/chat", *(w.endpoint for w in workers), replace(leaving.endpoint, ready=False, terminating=True)
            )
            await until(partial(_idle, stand, leaving.name))
            await leaving.stop()
            await more(lambda: len(answers))
            stand.work(*workers)
    assert [response for response in answers if not whole(response)] == []
    assert await stand.metric("paceline_retries_total") == 0


async def _idle(stand: Stand, name: str) -> bool:
    return not any(row["worker"] == name and row["in_flight"] for row in await stand.workers())

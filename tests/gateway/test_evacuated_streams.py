"""A worker that drains is left by its streams: they go on elsewhere unchanged, and it need not wait for the longest."""

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.conftest import MakeWorker
from tests.gateway.replicas import EMULATED, replicas
from tests.gateway.stand import CHAT, STREAM, Stand, gateway, until
from tests.gateway.test_resume_real import KEY, answer, ask
from tests.gateway.test_resumed_streams import text_of
from tests.gateway.worker_double import Script, WorkerDouble
from tests.worker.processes import LIMIT_S

from paceline_core.wire import WorkerState

pytestmark = pytest.mark.real
STREAMS, TOKENS = 8, 160
MANY = 100
ENDLESS = tuple(f" t{number}" for number in range(20 * MANY))


def held(stand: Stand, name: str) -> list[Any]:
    """The calls that a worker answers."""
    return [call for call in stand.calls if call.machine.worker == name]


async def test_a_scale_down_does_not_wait_for_the_longest_answer(tmp_path: Path) -> None:
    """Emulated workers make some 20 tokens a second: undisturbed, each stream takes some eight, at a worker apart."""
    bodies = [ask(number, seed=number, max_tokens=TOKENS, ignore_eos=True) for number in range(STREAMS)]
    (tmp_path / "apart").mkdir()
    with replicas(tmp_path, 3, KEY, engine=EMULATED, drain_timeout_s=LIMIT_S) as (leaving, staying, apart):
        async with (
            gateway(tmp_path, signing_key=KEY) as stand,
            gateway(tmp_path / "apart", signing_key=KEY) as other,
        ):
            await stand.serve([leaving.endpoint, staying.endpoint])
            await other.serve([apart.endpoint])
            undisturbed = asyncio.gather(*(answer(other, body) for body in bodies))
            asked = [asyncio.create_task(answer(stand, body)) for body in bodies]
            await until(lambda: any(call.machine.meter.output >= 3 for call in held(stand, leaving.name)))
            leaving.process.signal(signal.SIGTERM)
            assert await asyncio.to_thread(leaving.process.ended) == 0
            assert len(held(stand, staying.name)) == STREAMS, "the worker has ended before its streams did"
            assert await asyncio.gather(*asked) == await undisturbed
            assert await stand.metric("paceline_requests_total", outcome="ok") == STREAMS
            assert await stand.metric("paceline_stream_resumed_total", reason="evacuate") > 0
            assert await stand.metric("paceline_stream_resumed_total", reason="drain") == 0
            assert await stand.metric("paceline_stream_aborted_total") == 0


async def pair(stand: Stand, make_worker: MakeWorker, script: Script) -> tuple[WorkerDouble, WorkerDouble]:
    """The one that gets the first request, which then is to drain; and the other one."""
    workers = [await make_worker(name) for name in ("a", "b")]
    for worker in workers:
        worker.script = lambda seen: Script(tokens=ENDLESS[:MANY]) if seen.resume else script
    stand.work(*workers)
    await stand.ready(2)
    return workers[0], workers[1]


async def leave(stand: Stand, workers: tuple[WorkerDouble, WorkerDouble]) -> WorkerDouble:
    """Whoever has the request drains, once its answer has begun or could have; the other one."""
    await until(lambda: any(worker.seen for worker in workers))
    leaving, staying = sorted(workers, key=lambda worker: not worker.seen)
    leaving.say(state=WorkerState.DRAINING)
    await stand.ready(1)
    return staying


async def test_a_stream_moves_and_nothing_is_left_of_it(stand: Stand, make_worker: MakeWorker) -> None:
    workers = await pair(stand, make_worker, Script(tokens=ENDLESS, delay_s=0.05))
    posted = asyncio.create_task(stand.client.post("/v1/chat/completions", json=STREAM))
    staying = await leave(stand, workers)
    await until(lambda: bool(staying.seen))
    (there,), (leaving,) = staying.seen, [worker for worker in workers if worker is not staying]
    assert len(leaving.evacuated) == 1
    assert there.resume is not None
    told = len(there.resume["choices"][0]["ids"])
    assert text_of(await posted) == "".join(ENDLESS[: max(told, MANY)])
    assert await stand.metric("paceline_stream_resumed_total", reason="evacuate") == 1
    assert await stand.metric("paceline_retries_total") == 0
    assert stand.process.requests.open == 0


STAYS = {
    "foreign": (STREAM, Script(delay_s=0.7, foreign=True)),
    "not streamed": (CHAT, Script(delay_s=2.5)),
}


@pytest.mark.parametrize("name", STAYS)
async def test_what_nobody_could_go_on_with_ends_where_it_is(stand: Stand, make_worker: MakeWorker, name: str) -> None:
    body, script = STAYS[name]
    workers = await pair(stand, make_worker, script)
    posted = asyncio.create_task(stand.client.post("/v1/chat/completions", json=body))
    staying = await leave(stand, workers)
    assert (await posted).status_code == 200
    assert not staying.seen
    assert not any(worker.evacuated for worker in workers)
    assert await stand.metric("paceline_requests_total", outcome="ok") == 1


async def test_the_only_worker_finishes_its_streams(stand: Stand, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    worker.script = lambda _: Script(delay_s=0.7)
    stand.work(worker)
    posted = asyncio.create_task(stand.client.post("/v1/chat/completions", json=STREAM))
    await until(lambda: bool(worker.seen))
    worker.say(state=WorkerState.DRAINING)
    assert text_of(await posted) == "Time to first token"
    assert worker.evacuated == []


class Stubborn(WorkerDouble):
    """It hears the asking and keeps what it has."""

    def _evacuate(self, names: list[str]) -> bytes:
        super()._evacuate(names)
        for seen in self.seen:
            seen.given_up = False
        return b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"


async def test_a_worker_that_keeps_its_streams_is_let_be(stand: Stand, make_worker: MakeWorker) -> None:
    stubborn, other, heard = await Stubborn("a").start(), await make_worker("b"), asyncio.Event()
    stubborn.script = lambda _: Script(until=heard)
    stand.work(stubborn)
    await stand.ready()
    posted = asyncio.create_task(stand.client.post("/v1/chat/completions", json=STREAM))
    await until(lambda: bool(stubborn.seen))
    stand.work(stubborn, other)
    stubborn.say(state=WorkerState.DRAINING)
    await until(lambda: bool(stubborn.evacuated))
    heard.set()
    assert text_of(await posted) == "Time to first token"
    assert not other.seen
    assert await stand.metric("paceline_stream_resumed_total") == 0
    await stubborn.stop()

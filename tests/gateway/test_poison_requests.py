"""Requests that kill the worker they run on, among others that only share it: real sockets, scripted workers."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.gateway.conftest import MakeWorker
from tests.gateway.stand import CHAT, STREAM, Stand, gateway, until
from tests.gateway.test_resumed_streams import TEXT, TOKENS, events_of, text_of
from tests.gateway.worker_double import SERVICE, Script, Seen, WorkerDouble

from paceline_core.wire import MOVED_HEADER, WorkerState

pytestmark = pytest.mark.real
INNOCENT = Script(tokens=TOKENS, delay_s=0.02)
ENGINE_DIED = '{"error":{"code":"engine_failed"}}'
POISON = "kill them all"


def poison(*, stream: bool = True) -> dict[str, Any]:
    return CHAT | {"stream": stream, "messages": [{"role": "user", "content": POISON}]}


async def crowd(stand: Stand, make_worker: MakeWorker, lethal: Script, count: int = 4) -> list[WorkerDouble]:
    """Workers that end, or whatever `lethal` says, when they get the poison."""
    made = [await make_worker(f"w{index}") for index in range(count)]
    for worker in made:
        worker.script = lambda seen: lethal if POISON.encode() in seen.body else INNOCENT
    stand.work(*made)
    await stand.ready(count)
    return made


def killed_by_it(made: list[WorkerDouble]) -> list[Seen]:
    return [seen for worker in made for seen in worker.seen if POISON.encode() in seen.body]


async def among_innocents(stand: Stand, body: dict[str, Any], count: int = 9) -> tuple[httpx.Response, list[str]]:
    """The answer to the poison, sent among streams; and their texts."""
    innocents = [asyncio.create_task(stand.client.post("/v1/chat/completions", json=STREAM)) for _ in range(count)]
    await until(lambda: sum(call.machine.begun for call in stand.calls) == count)
    response = await stand.client.post("/v1/chat/completions", json=body, headers={"x-request-id": "the-poison"})
    return response, [text_of(each) for each in await asyncio.gather(*innocents)]


LETHAL: dict[str, tuple[bool, Script]] = {
    "before its first byte": (True, Script(dies_after=0)),
    "behind its first token": (True, Script(tokens=TOKENS, dies_after=1)),
    "in the middle": (True, Script(tokens=TOKENS, dies_after=3)),
    "within a whole answer": (False, Script(dies_after=0)),
}


@pytest.mark.parametrize("name", LETHAL)
async def test_a_poison_request_kills_two_workers_is_refused_and_breaks_no_other_stream(
    stand: Stand, make_worker: MakeWorker, name: str
) -> None:
    stream, lethal = LETHAL[name]
    made = await crowd(stand, make_worker, lethal)
    response, texts = await among_innocents(stand, poison(stream=stream))
    assert texts == [TEXT] * 9
    assert len(killed_by_it(made)) == 2
    assert await stand.metric("paceline_worker_deaths_total") == 2
    if lethal.dies_after == 0:
        assert response.status_code == 500
        assert response.headers["x-should-retry"] == "false"
        error = response.json()["error"]
    else:
        error = events_of(response)[-1]["error"]
    assert (error["code"], error["type"]) == ("request_isolated", "server_error")
    assert await stand.metric("paceline_isolated_requests_total", tenant="team") == 1
    assert stand.process.requests.open == 0


async def test_what_is_isolated_pays_its_prompt_and_the_autoscaler_hears_who_sent_it(
    stand: Stand, make_worker: MakeWorker
) -> None:
    await crowd(stand, make_worker, Script(dies_after=0))
    await stand.client.post("/v1/chat/completions", json=poison(), headers={"x-request-id": "the-poison"})
    (tenant,) = (await stand.admin.get("/v1/tenants")).json()["tenants"]
    assert tenant["month"]["requests"] == 1
    assert (tenant["month"]["input_tokens"] > 0, tenant["month"]["output_tokens"]) == (True, 0)
    async with stand.admin.stream("GET", "/internal/demand", headers=stand.autoscaler_headers()) as demand:
        line = json.loads(await anext(demand.aiter_lines()))
    ((told,),) = [service["isolated"] for service in line["services"]]
    assert (told["tenant"], told["request"]) == ("team", "the-poison")


async def test_an_engine_that_dies_is_a_death_like_any(stand: Stand, make_worker: MakeWorker) -> None:
    header = ((MOVED_HEADER, "engine"),)
    for lethal in (
        Script(status=500, headers=header, body=ENGINE_DIED),
        replace(INNOCENT, moved_after=2, reason="engine"),
    ):
        made = await crowd(stand, make_worker, lethal)
        response = await stand.client.post("/v1/chat/completions", json=poison())
        assert '"request_isolated"' in response.text
        assert len(killed_by_it(made)) == 2


async def test_an_engine_that_fails_one_request_has_not_died(stand: Stand, make_worker: MakeWorker) -> None:
    await crowd(stand, make_worker, Script(status=500, body=ENGINE_DIED))
    response = await stand.client.post("/v1/chat/completions", json=poison())
    assert response.json()["error"]["code"] == "engine_failed"
    assert await stand.metric("paceline_worker_deaths_total") == 0


def silent_after_one_more(seen: Seen) -> Script:
    """A stream that falls silent after a token of each of its first lives."""
    told = len(seen.resume["choices"][0]["ids"]) if seen.resume else 0
    return replace(INNOCENT, stall_after=told + 1) if told < 3 else INNOCENT


async def _drain(_: Stand, worker: WorkerDouble) -> None:
    worker.say(state=WorkerState.DRAINING)


async def _evict(stand: Stand, worker: WorkerDouble) -> None:
    listed = stand.cluster.endpoints.items[SERVICE].endpoints
    leaving = (replace(each, terminating=each.name == worker.name or each.terminating) for each in listed)
    stand.cluster.serve(SERVICE, *leaving)


def _known(stand: Stand, name: str, what: str) -> bool:
    worker = stand.process.registry.services[SERVICE].pool.workers.get(name)
    return worker is not None and bool(getattr(worker, what))


@pytest.mark.parametrize("leave", [_drain, _evict])
async def test_drains_and_evictions_are_not_held_against_anybody(
    stand: Stand, make_worker: MakeWorker, leave: Callable[[Stand, WorkerDouble], Awaitable[None]]
) -> None:
    """Three workers that are told to leave take the same stream with them, and it goes on."""
    made = [await make_worker(f"w{index}") for index in range(4)]
    for worker in made:
        worker.script = silent_after_one_more
    stand.work(made[0])
    await stand.ready(1)
    asked = asyncio.create_task(stand.client.post("/v1/chat/completions", json=STREAM))
    for worker, following in pairwise(made):
        await until(lambda most=int(worker.name[1:]) + 1: [call.machine.meter.output for call in stand.calls] == [most])  # type: ignore[misc]
        stand.work(worker, following)
        await until(lambda w=following: _known(stand, w.name, "connected"))  # type: ignore[misc]
        await leave(stand, worker)
        await until(lambda w=worker: _known(stand, w.name, "draining"))  # type: ignore[misc]
        await worker.stop()
    assert text_of(await asked) == TEXT
    assert await stand.metric("paceline_worker_deaths_total") == 0
    assert await stand.metric("paceline_isolated_requests_total") == 0


async def test_silence_is_no_death(tmp_path: Path, make_worker: MakeWorker) -> None:
    async with gateway(tmp_path, {"stream_idle_timeout_s": 0.2}) as stand:
        made = [await make_worker(f"w{index}") for index in range(4)]
        for worker in made:
            worker.script = silent_after_one_more
        stand.work(*made)
        await stand.ready(4)
        assert text_of(await stand.client.post("/v1/chat/completions", json=STREAM)) == TEXT
        assert await stand.metric("paceline_worker_deaths_total") == 0


async def test_a_connection_that_breaks_while_its_worker_lives_is_no_death(
    stand: Stand, make_worker: MakeWorker
) -> None:
    await crowd(stand, make_worker, Script(tokens=TOKENS, cut_after=2))
    await stand.client.post("/v1/chat/completions", json=poison())
    assert await stand.metric("paceline_worker_deaths_total") == 0

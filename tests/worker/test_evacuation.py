"""Streams that a worker gives up so that they go on elsewhere: on request, at its drain's end, when its engine dies."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.worker.harness import Rig, events, eventually, running
from tests.worker.scripted_engine import Script

CHAT = "/v1/chat/completions"
HELLO: dict[str, Any] = {"model": "chat", "messages": [{"role": "user", "content": "hello"}], "stream": True}
HOLDING = Script(fault="hold", phase="decode")


@pytest.fixture
async def rig(folder: Path, reply: list[int]) -> AsyncIterator[Rig]:
    held = Script(reply=reply, fault="hold", phase="decode", pause_s=0.001)
    async with running(held, folder=folder, drain_timeout_s=0.05) as rig:
        yield rig


async def evacuate(rig: Rig, **asked: Any) -> httpx.Response:
    return await rig.http.post("/internal/evacuate", json={"v": 1} | asked, headers=rig.gateway_headers)


async def begun(rig: Rig, name: str, **body: Any) -> Any:
    call = rig.call(CHAT, HELLO | body, {**rig.gateway_headers, "x-request-id": name})
    assert await call.status() == 200
    await call.write()
    return call


async def test_an_evacuated_stream_ends_with_the_reason_and_no_error(rig: Rig) -> None:
    call = await begun(rig, "one")
    assert (await evacuate(rig)).json()["moved"] == 1
    body = await call.done()
    assert body.endswith(b"\n\n: moved evacuate\n")
    assert b"error" not in body
    assert b"[DONE]" not in body


async def test_only_the_named_streams_are_evacuated(rig: Rig) -> None:
    one, other = await begun(rig, "one"), await begun(rig, "other")
    assert (await evacuate(rig, requests=["one", "nobody"])).json()["moved"] == 1
    assert (await one.done()).endswith(b": moved evacuate\n")
    assert not other.task.done()
    other.leave()
    await other.done()


async def test_what_ends_within_its_time_is_not_moved(folder: Path, reply: list[int]) -> None:
    async with running(Script(reply=reply, pause_s=0.001), folder=folder) as rig:
        call = await begun(rig, "one")
        assert (await evacuate(rig, deadline_ms=10_000)).json()["moved"] == 0
        assert (await call.done()).endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("stream", [True, False])
async def test_what_has_not_begun_is_refused_as_by_a_draining_worker(folder: Path, stream: bool) -> None:
    async with running(Script(fault="hold", phase="prefill"), folder=folder) as rig:
        post = rig.http.post(CHAT, json=HELLO | {"stream": stream}, headers=rig.gateway_headers)
        waiting = asyncio.create_task(post)
        await eventually(lambda: rig.worker.gate.open)
        answered = asyncio.create_task(_until_moved(rig))
        response = await waiting
        assert (response.status_code, response.json()["error"]["code"]) == (503, "draining")
        await answered


async def _until_moved(rig: Rig) -> None:
    while not (await evacuate(rig)).json()["moved"]:
        pass


async def test_streams_of_strangers_stay_and_strangers_cannot_evacuate(rig: Rig) -> None:
    call = rig.call(CHAT, HELLO)
    assert await call.status() == 200
    assert (await evacuate(rig)).json()["moved"] == 0
    refused = await rig.http.post("/internal/evacuate", json={"v": 1})
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key")
    call.leave()
    await call.done()


@pytest.mark.parametrize("body", [b"", b"[]", b'{"v": 2}', b'{"deadline_ms": -1}', b'{"requests": "one"}'])
async def test_a_malformed_evacuation_is_refused(rig: Rig, body: bytes) -> None:
    response = await rig.http.post("/internal/evacuate", content=body, headers=rig.gateway_headers)
    assert (response.status_code, response.json()["error"]["code"]) == (400, "invalid_request")


async def test_streams_are_given_up_when_the_time_to_drain_is_over(rig: Rig) -> None:
    ours, stranger = await begun(rig, "one"), rig.call(CHAT, HELLO)
    assert await stranger.status() == 200
    await rig.worker.drain()
    assert (await ours.done()).endswith(b"\n\n: moved drain\n")
    *_, error, done = events(await stranger.done())
    assert (error["error"]["code"], done) == ("stream_lost", "[DONE]")


async def test_streams_are_given_up_when_the_engine_dies(folder: Path, reply: list[int]) -> None:
    crash = Script(reply=reply, fault="crash", phase="decode", pause_s=0.01)
    async with running(crash, folder=folder) as rig:
        response = await rig.http.post(CHAT, json=HELLO, headers=rig.gateway_headers)
    assert response.content.endswith(b"\n\n: moved engine\n")


async def test_a_request_that_the_engine_cannot_do_is_not_moved(folder: Path, reply: list[int]) -> None:
    async with running(Script(reply=reply, fault="error", phase="decode", pause_s=0.01), folder=folder) as rig:
        body = (await rig.http.post(CHAT, json=HELLO, headers=rig.gateway_headers)).content
    assert json.loads(body.split(b"data: ")[-2])["error"]["code"] == "engine_failed"

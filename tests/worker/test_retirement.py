"""A worker that the autoscaler retires: unready, closed to new requests, open to its own, and back when it must be."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.worker.conftest import TEXT
from tests.worker.harness import Rig, eventually, running, settings, text_of
from tests.worker.scripted_engine import Script

from paceline_core.wire import RETIRE_PATH, LoadReport, WorkerState, decode
from paceline_workers.server.engine.client import EngineState
from paceline_workers.server.load_report import LoadPublisher

CHAT = "/v1/chat/completions"
HELLO: dict[str, Any] = {"model": "chat", "messages": [{"role": "user", "content": "hello"}]}
LONG, SHORT = 30.0, 0.05


@pytest.fixture
async def rig(folder: Path, reply: list[int]) -> AsyncIterator[Rig]:
    async with running(Script(reply=reply, pause_s=0.005), folder=folder) as rig:
        yield rig


async def retire(rig: Rig, seconds: object = LONG, **headers: str) -> httpx.Response:
    body = {"v": 1, "seconds": seconds}
    return await rig.http.post(RETIRE_PATH, json=body, headers=headers or rig.autoscaler_headers)


async def unretire(rig: Rig) -> httpx.Response:
    return await rig.http.delete(RETIRE_PATH, headers=rig.autoscaler_headers)


async def test_a_retired_worker_is_unready_says_so_and_takes_nothing_new(rig: Rig) -> None:
    assert (await retire(rig)).json() == {"v": 1, "seq": 0, "retired": True}
    ready = await rig.http.get("/readyz")
    assert (ready.status_code, ready.json()["error"]["message"]) == (503, "This worker is retired.")
    assert (await rig.http.get("/healthz")).status_code == 200
    refused = await rig.http.post(CHAT, json=HELLO, headers=rig.gateway_headers)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")
    assert refused.headers["x-paceline-draining"] == "1"
    report = rig.worker.board.report
    assert (report.state, report.retired) == (WorkerState.DRAINING, True)


async def test_it_finishes_what_it_has(rig: Rig) -> None:
    call = rig.call(CHAT, HELLO | {"stream": True}, rig.gateway_headers)
    assert await call.status() == 200
    await retire(rig)
    assert text_of(await call.done()) == TEXT


async def test_it_comes_back_on_request(rig: Rig) -> None:
    await retire(rig)
    assert (await unretire(rig)).json()["retired"] is False
    assert (await rig.http.get("/readyz")).status_code == 200
    assert (await rig.http.post(CHAT, json=HELLO, headers=rig.gateway_headers)).status_code == 200
    report = rig.worker.board.report
    assert (report.state, report.retired) == (WorkerState.READY, False)
    assert (await unretire(rig)).status_code == 200  # and asking again changes nothing


async def test_it_comes_back_by_itself_unless_that_is_renewed(rig: Rig) -> None:
    await retire(rig, SHORT)
    await eventually(lambda: not rig.worker.retirement.active)
    assert (await rig.http.get("/readyz")).status_code == 200
    await retire(rig, SHORT)
    await retire(rig, LONG)
    await asyncio.sleep(3 * SHORT)
    assert rig.worker.retirement.active


async def test_its_load_stream_tells_both_at_once(rig: Rig) -> None:
    lines = rig.worker.board.lines()

    async def told(retired: bool) -> LoadReport:
        async for line in lines:
            report = decode(LoadReport, line)
            if report.retired is retired:
                return report
        raise AssertionError

    await retire(rig)
    assert (await told(True)).state is WorkerState.DRAINING
    await unretire(rig)
    assert (await told(False)).state is WorkerState.READY


async def test_only_the_autoscaler_may_retire_a_worker(rig: Rig) -> None:
    forged = {"x-paceline-internal-token": rig.autoscaler_headers["x-paceline-internal-token"][:-4] + "AAAA"}
    for headers in (rig.gateway_headers, forged, {"x-request-id": "a-stranger"}):
        refused = await retire(rig, **headers)
        assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key")
        assert (await rig.http.delete(RETIRE_PATH, headers=headers)).status_code == 401
    assert not rig.worker.retirement.active


@pytest.mark.parametrize("seconds", [0, -1, 30.5, 1e9, "soon", None])
async def test_seconds_out_of_range_are_refused_by_name(rig: Rig, seconds: object) -> None:
    refused = await retire(rig, seconds)
    error = refused.json()["error"]
    assert (refused.status_code, error["code"], error["param"]) == (400, "invalid_request", "seconds")
    assert not rig.worker.retirement.active


@pytest.mark.parametrize("body", [b"", b"[]", b'{"v": 2, "seconds": 1}', b'{"seconds": NaN}', b"x" * 5000])
async def test_a_malformed_request_retires_nobody(rig: Rig, body: bytes) -> None:
    refused = await rig.http.post(RETIRE_PATH, content=body, headers=rig.autoscaler_headers)
    assert refused.status_code in {400, 413}
    assert not rig.worker.retirement.active


async def test_a_worker_that_drains_for_good_cannot_be_called_back(rig: Rig) -> None:
    await retire(rig)
    await rig.worker.drain()
    assert (await retire(rig)).json()["retired"] is False
    assert (await unretire(rig)).json()["retired"] is False
    report = rig.worker.board.report
    assert (report.state, report.retired) == (WorkerState.DRAINING, False)
    assert (await rig.http.get("/readyz")).json()["error"]["message"] == "This worker is draining."


def test_what_the_engine_does_meanwhile_is_known_afterwards() -> None:
    board = LoadPublisher(settings())
    for event in (EngineState.LOADING, EngineState.UP):
        board.on_engine(event)
    board.retire(retired=True)
    board.on_engine(EngineState.DOWN)
    states = [board.report.state]
    board.retire(retired=False)
    assert [*states, board.report.state] == [WorkerState.DRAINING, WorkerState.FAILED]


def test_an_older_reader_takes_a_retired_worker_for_a_draining_one() -> None:
    board = LoadPublisher(settings())
    board.retire(retired=True)
    line = json.loads(board.report.model_dump_json())
    assert line.pop("retired") is True
    assert decode(LoadReport, json.dumps(line).encode()).state is WorkerState.DRAINING

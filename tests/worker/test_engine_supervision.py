"""An engine that dies, hangs or lies, at every phase: clients are answered, the next engine serves."""

import asyncio
import re
import time
from pathlib import Path
from typing import Any

import pytest
from tests.worker.conftest import TEXT
from tests.worker.harness import LIMIT_S, Launcher, Rig, events, eventually, running, text_of
from tests.worker.scripted_engine import DECODE_FAULT_AT, Script

from paceline_core.clock import ManualClock, SystemClock
from paceline_core.errors import Code, InvalidInput, PacelineError, RequestError
from paceline_core.process import cancel
from paceline_core.registry import Outcome
from paceline_core.wire import WorkerState
from paceline_workers.messages import Sampling, Submit
from paceline_workers.server.engine.client import LOAD_ATTEMPTS, EngineClient, EngineState
from paceline_workers.server.engine.link import EngineProcess
from paceline_workers.server.watchdog import PATIENCE

CHAT = "/v1/chat/completions"
HELLO: dict[str, Any] = {"model": "chat", "messages": [{"role": "user", "content": "hello"}]}
STREAM = HELLO | {"stream": True}
FAULTS = ["crash", "hang", "garbage"]


class Hasty(SystemClock):
    """Real time, but nobody sleeps for long: restarts come at once and the watchdog looks often."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(min(seconds, 0.005))


class HaltedClock(ManualClock):
    """Time moves only by hand, and whoever sleeps never wakes: no watchdog acts."""

    async def sleep(self, seconds: float) -> None:
        await asyncio.Event().wait()


async def serves_again(rig: Rig) -> None:
    """A later engine answers; on a starved machine a short watchdog may need more than one."""
    engine = rig.worker.parts.engine
    response = await rig.http.post(CHAT, json=HELLO)
    while response.status_code != 200:
        await eventually(lambda: engine.state is EngineState.UP)
        response = await rig.http.post(CHAT, json=HELLO)
    assert response.json()["choices"][0]["message"]["content"] == TEXT
    assert engine.restarts > 0


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize(("phase", "body"), [("queued", HELLO), ("prefill", STREAM)])
async def test_a_fault_before_the_first_token_is_a_plain_error(
    folder: Path, reply: list[int], fault: Any, phase: Any, body: dict[str, Any]
) -> None:
    scripts = Script(fault=fault, phase=phase), Script(reply=reply)
    async with running(*scripts, folder=folder, clock=Hasty(), watchdog_s=0.3) as rig:
        response = await rig.http.post(CHAT, json=body)
        assert response.status_code == 500
        assert response.json()["error"]["code"] == Code.ENGINE_FAILED
        assert response.headers["x-should-retry"] == "true"
        await serves_again(rig)


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_after_the_first_token_ends_the_stream_with_an_error_event(
    folder: Path, reply: list[int], fault: Any
) -> None:
    scripts = Script(reply=reply, fault=fault, phase="decode", pause_s=0.002), Script(reply=reply)
    async with running(*scripts, folder=folder, clock=Hasty(), watchdog_s=0.3) as rig:
        body = (await rig.http.post(CHAT, json=STREAM)).content
        *chunks, error, done = events(body)
        assert (error["error"]["code"], done) == (Code.ENGINE_FAILED, "[DONE]")
        assert text_of(body)
        assert TEXT.startswith(text_of(body))
        assert len(chunks) <= 1 + DECODE_FAULT_AT
        await serves_again(rig)


async def test_every_open_request_of_a_dead_engine_is_answered(folder: Path, reply: list[int]) -> None:
    async with running(Script(fault="hold", phase="prefill"), Script(reply=reply), folder=folder, clock=Hasty()) as rig:
        calls = [rig.call(CHAT, body) for body in [HELLO, STREAM] * 5]
        await eventually(lambda: rig.worker.board.report.running == len(calls))
        rig.worker.parts.engine._handle.kill()  # type: ignore[union-attr]
        assert [await call.status() for call in calls] == [500] * len(calls)
        await serves_again(rig)


async def test_an_engine_that_makes_no_progress_but_beats_is_left_alone(folder: Path) -> None:
    clock = HaltedClock()
    async with running(Script(fault="hold", phase="prefill"), folder=folder, clock=clock, watchdog_s=5.0) as rig:
        call, engine = rig.call(CHAT, HELLO), rig.worker.parts.engine
        await eventually(lambda: rig.worker.board.report.running == 1)
        clock.advance(100.0)
        assert engine.silence == 100.0
        await eventually(lambda: engine.silence == 0.0)
        assert (await rig.http.get("/healthz")).status_code == 200
        call.leave()
        await call.done()


@pytest.mark.parametrize("computing", [True, False])
async def test_an_engine_that_computes_in_silence_is_given_more_time(
    computing: bool, caplog: pytest.LogCaptureFixture
) -> None:
    launcher = Launcher(Script(fault="hang", phase="prefill"), cpu=time.monotonic if computing else lambda: 0.0)
    client = EngineClient(launcher, Hasty(), watchdog_s=0.1)
    running = asyncio.create_task(client.run())
    await eventually(lambda: client.state is EngineState.UP)
    with client.submit(Submit("a", [1], 1, Sampling())) as stream, pytest.raises(RequestError):
        await asyncio.wait_for(stream.read(), LIMIT_S)
    await cancel(running)
    (killed,) = [record for record in caplog.records if record.message == "the engine hangs and is killed"]
    assert vars(killed)["silence_s"] > (0.1 * PATIENCE if computing else 0.1)


async def test_a_worker_without_an_engine_is_alive_but_not_ready(folder: Path, reply: list[int]) -> None:
    script = Script(reply=reply, fault="crash", phase="queued")
    async with running(script, Script(fault="hold", phase="loading"), folder=folder) as rig:
        await rig.http.post(CHAT, json=HELLO)
        await eventually(lambda: rig.worker.parts.engine.restarts == 1)
        assert (await rig.http.get("/readyz")).status_code == 503
        assert (await rig.http.get("/healthz")).status_code == 200
        refusal = await rig.http.post(CHAT, json=HELLO)
        assert refusal.json()["error"]["code"] == Code.NO_CAPACITY
        assert rig.worker.board.report.state in {WorkerState.FAILED, WorkerState.STARTING}


async def test_a_silence_over_the_watchdogs_limit_fails_the_liveness_probe(folder: Path) -> None:
    clock, log = HaltedClock(), folder / "engine.log"
    script = Script(fault="hang", phase="prefill", log=str(log))
    async with running(script, folder=folder, clock=clock, watchdog_s=5.0) as rig:
        clock.advance(1000.0)
        assert (await rig.http.get("/healthz")).status_code == 200
        call = rig.call(CHAT, HELLO)
        await eventually(log.exists)
        clock.advance(4.0)
        assert (await rig.http.get("/healthz")).status_code == 200
        clock.advance(100.0)
        refusal = await rig.http.get("/healthz")
        assert refusal.status_code == 500
        assert re.fullmatch(r"The engine is silent for 10\d s\.", refusal.json()["error"]["message"])
        call.leave()
        await call.done()


async def test_restarts_are_counted_for_prometheus(folder: Path, reply: list[int]) -> None:
    async with running(Script(fault="crash", phase="queued"), Script(reply=reply), folder=folder, clock=Hasty()) as rig:
        await rig.http.post(CHAT, json=HELLO)
        await serves_again(rig)
        scrape = (await rig.http.get("/metrics")).text
        lines = [line for line in scrape.splitlines() if line.startswith("paceline_engine_restarts_total{")]
        assert [line.split()[-1] for line in lines] == ["1.0"]
        assert f'outcome="{Outcome.UPSTREAM_ERROR}"' in scrape


async def test_an_engine_that_says_why_it_cannot_serve_ends_the_worker_with_its_words() -> None:
    client = EngineClient(Launcher(Script(fault="failed", phase="loading")), Hasty(), watchdog_s=1.0)
    with pytest.raises(PacelineError, match=r"model\.safetensors: is truncated"):
        await asyncio.wait_for(client.run(), LIMIT_S)


async def test_a_setting_that_the_engine_cannot_serve_ends_the_worker_as_a_wrong_file_does() -> None:
    launcher = Launcher(Script(fault="failed", phase="loading", field="engine.host_bytes"))
    with pytest.raises(InvalidInput) as refused:
        await asyncio.wait_for(EngineClient(launcher, Hasty(), watchdog_s=1.0).run(), LIMIT_S)
    assert (refused.value.field, launcher.count) == ("engine.host_bytes", 1)


async def test_an_engine_that_never_loads_is_given_up() -> None:
    launcher = Launcher(Script(fault="crash", phase="loading"))
    client = EngineClient(launcher, Hasty(), watchdog_s=1.0)
    with pytest.raises(PacelineError, match="ended 5 times while loading"):
        await asyncio.wait_for(client.run(), LIMIT_S)
    assert launcher.count == LOAD_ATTEMPTS


async def test_an_engine_program_that_does_not_exist_is_named() -> None:
    with pytest.raises(PacelineError, match=r"cannot be started: .*no-such-program"):
        await EngineProcess.spawn(["/no-such-program"], lambda _: None)


async def test_drain_refuses_new_work_and_finishes_what_runs(folder: Path, reply: list[int]) -> None:
    async with running(Script(reply=reply, pause_s=0.005), folder=folder, drain_timeout_s=LIMIT_S) as rig:
        call = rig.call(CHAT, STREAM)
        assert await call.status() == 200
        draining = asyncio.create_task(rig.worker.drain())
        await eventually(lambda: rig.worker.gate.draining)
        refusal = await rig.http.post(CHAT, json=HELLO)
        assert (refusal.status_code, refusal.headers["x-paceline-draining"]) == (503, "1")
        assert refusal.json()["error"]["code"] == Code.DRAINING
        ready = await rig.http.get("/readyz")
        assert ready.json()["error"]["code"] == Code.DRAINING
        assert rig.worker.board.report.state is WorkerState.DRAINING
        body = await call.done()
        assert text_of(body) == TEXT
        await draining


@pytest.mark.parametrize("phase", ["prefill", "decode"])
async def test_what_outlasts_the_drain_is_ended_with_an_answer(folder: Path, reply: list[int], phase: Any) -> None:
    script = Script(reply=reply, fault="hold", phase=phase, pause_s=0.002)
    async with running(script, folder=folder, drain_timeout_s=0.05) as rig:
        calls = [rig.call(CHAT, HELLO), rig.call(CHAT, STREAM)]
        await eventually(lambda: rig.worker.board.report.running == 2)
        if phase == "decode":
            assert await calls[1].status() == 200
        await asyncio.wait_for(rig.worker.drain(), LIMIT_S)
        bodies = [await call.done() for call in calls]
        assert Code.DRAINING.encode() in bodies[0]
        assert (Code.STREAM_LOST if phase == "decode" else Code.DRAINING).encode() in bodies[1]
        assert rig.worker.gate.open == 0


async def test_load_streams_end_with_the_drain(folder: Path, reply: list[int]) -> None:
    async with running(Script(reply=reply), folder=folder, clock=Hasty()) as rig:
        call = rig.call("/internal/load", headers=rig.gateway_headers)
        await call.status()
        await call.write()
        await rig.worker.drain()
        assert b'"state":"draining"' in await call.done()

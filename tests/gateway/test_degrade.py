"""A route that serves less while its service cannot keep its promise: a whole gateway, from client to worker."""

import asyncio
import contextlib
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.gateway import manifests
from tests.gateway.conftest import MakeWorker
from tests.gateway.replicas import EMULATED, replicas
from tests.gateway.stand import STREAM, Stand, gateway, until
from tests.gateway.test_fallback import SPARE, diverted, nothing_is_left, occupied
from tests.gateway.test_one_trace_real import CALLER, SAMPLED, writer
from tests.gateway.worker_double import Script, WorkerDouble
from tests.worker.collector import collecting

from paceline_core.auth import new_signing_key
from paceline_core.telemetry import BackgroundWriter
from paceline_core.wire import StepTime
from paceline_gateway.queueing import pressure
from paceline_gateway.telemetry.metrics import LogSinks

pytestmark = pytest.mark.real
KEY = new_signing_key()
ASKED: dict[str, Any] = STREAM | {"model": "public"}
PROMISE = {"interactive": {"slo": {"ttft": {"p95": "500ms"}}, "maxTokens": 1000}}
OFFLINE, BATCH = {"x-paceline-class": "offline"}, {"x-paceline-class": "batch"}


@pytest.fixture(autouse=True)
def short_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pressure comes and goes within a second."""
    monkeypatch.setattr(pressure, "AFTER_S", 0.5)
    monkeypatch.setattr(pressure, "RECOVERY_S", 0.5)


async def busy_service(stand: Stand, make_worker: MakeWorker, **degrade: Any) -> tuple[WorkerDouble, WorkerDouble]:
    """The route's service, with two slots and slow steps, and the worker of a smaller model."""
    stand.cluster.put(manifests.service(classes=PROMISE))
    stand.cluster.put(manifests.service("spare", classes={"interactive": {"maxTokens": 500}}))
    if degrade:
        stand.cluster.put(manifests.route("public", {"service": "chat"}, degrade={"after": "500ms"} | degrade))
    else:
        stand.cluster.put(manifests.route("public", {"service": "chat"}))
    worker, spare = await make_worker(slots=2), await make_worker("s0", service=SPARE)
    worker.say(step_time=StepTime(base=0.3, prefill=0.00001))  # 4 tokens in 2 slots: the next one is free after 0.6 s
    stand.work(worker)
    stand.work(spare, service=SPARE)
    await stand.ready()
    await stand.ready(service=SPARE)
    assert (await ask(stand)).status_code == 200  # answers have a known length from now on
    worker.seen.clear()
    return worker, spare


async def ask(stand: Stand, headers: dict[str, str] | None = None, **more: Any) -> httpx.Response:
    return await stand.client.post("/v1/chat/completions", json=ASKED | more, headers=headers)


def pressed(stand: Stand, key: str = "default/chat") -> bool:
    return stand.process.registry.services[key].dispatcher.overloaded


@contextlib.asynccontextmanager
async def overloaded(stand: Stand, worker: WorkerDouble) -> AsyncIterator[None]:
    """Two streams that do not end hold both slots."""
    worker.script = lambda _: Script(stall_after=1)
    async with occupied(stand), occupied(stand):
        await until(lambda: pressed(stand))
        worker.seen.clear()
        yield
        worker.script = lambda _: Script()


def degraded(stand: Stand, kind: str, **labels: str) -> Any:
    return stand.metric("paceline_degraded_requests_total", kind=kind, **labels)


async def test_a_smaller_model_answers_until_the_service_keeps_its_promise_again(
    stand: Stand, make_worker: MakeWorker
) -> None:
    worker, spare = await busy_service(stand, make_worker, model="spare")
    async with overloaded(stand, worker):
        answer = await ask(stand)
        assert (answer.status_code, answer.headers["x-paceline-degraded"]) == (200, "model")
        assert (len(worker.seen), json.loads(spare.seen[0].body)["model"]) == (0, "spare")
    await until(lambda: not pressed(stand))
    again = await ask(stand)
    assert (again.status_code, "x-paceline-degraded" in again.headers) == (200, False)
    assert (len(worker.seen), len(spare.seen)) == (1, 1)
    assert await degraded(stand, "model", pisvc="chat", **{"class": "interactive"}) == 1
    assert await degraded(stand, "model") == 1
    assert await degraded(stand, "max_tokens") == 0
    assert await diverted(stand, "degraded") == 1
    assert stand.process.registry.services["default/chat"].tallies["interactive"].arrivals == 5  # type: ignore[index]
    await nothing_is_left(stand)


async def waiting(stand: Stand, count: int) -> None:
    await until(lambda: stand.process.registry.services["default/chat"].dispatcher.waiting == count)


async def test_output_tokens_are_capped_where_the_request_would_take_more(
    stand: Stand, make_worker: MakeWorker
) -> None:
    worker, _ = await busy_service(stand, make_worker, maxTokens=8)
    limits: list[dict[str, Any]] = [
        {}, {"max_tokens": 9}, {"max_completion_tokens": 900}, {"max_tokens": 8}, {"min_tokens": 20}
    ]  # fmt: skip
    async with overloaded(stand, worker):
        asked = [asyncio.create_task(ask(stand, user=str(n), **limit)) for n, limit in enumerate(limits)]
        assert (await ask(stand, max_tokens=1001)).status_code == 400
        await waiting(stand, len(limits))
    answers = await asyncio.gather(*asked)
    assert [answer.status_code for answer in answers] == [200] * len(limits)
    said = [answer.headers.get("x-paceline-degraded") for answer in answers]
    assert said == ["max_tokens", "max_tokens", "max_tokens", None, "max_tokens"]
    seen = sorted(worker.seen, key=lambda each: str(json.loads(each.body)["user"]))
    bodies = [json.loads(each.body) for each in seen]
    assert [body.get("max_completion_tokens", body.get("max_tokens")) for body in bodies] == [8, 8, 8, 8, 20]
    assert [each.headers["x-paceline-max-tokens"] for each in seen] == ["8", "8", "8", "8", "20"]
    assert await degraded(stand, "max_tokens", pisvc="chat") == 4
    assert await degraded(stand, "model") == 0
    for apart, count in (("true", 4), ("false", 2)):  # the first one, and the one that asked for no more
        judged = {"slo": "availability", "pisvc": "chat", "verdict": "good", "degraded": apart}
        assert await stand.metric("paceline_slo_requests_total", **judged) == count
    await nothing_is_left(stand)


async def test_a_capped_answer_of_a_real_worker_ends_for_its_length(tmp_path: Path) -> None:
    with replicas(tmp_path, 1, KEY, engine=EMULATED | {"max_seqs": 2}) as (worker,):
        async with gateway(tmp_path, signing_key=KEY) as stand:
            stand.cluster.put(manifests.service(classes=PROMISE))
            stand.cluster.put(manifests.route("public", {"service": "chat"}, degrade={"after": "1ms", "maxTokens": 5}))
            await stand.serve([worker.endpoint])
            first = await ask(stand, max_tokens=60)  # some 3 s, so that the next slot is free after half of them
            assert (first.status_code, "x-paceline-degraded" in first.headers) == (200, False)
            async with occupied(stand), occupied(stand):
                await until(lambda: pressed(stand))
                asked = asyncio.create_task(ask(stand, stream=False))
                await waiting(stand, 1)
            answer = await asked
    assert answer.headers["x-paceline-degraded"] == "max_tokens"
    assert (answer.json()["choices"][0]["finish_reason"], answer.json()["usage"]["completion_tokens"]) == ("length", 5)


async def test_a_smaller_model_gives_no_more_than_its_own_limit(stand: Stand, make_worker: MakeWorker) -> None:
    worker, spare = await busy_service(stand, make_worker, model="spare")
    async with overloaded(stand, worker):
        answer = await ask(stand, max_tokens=800)
    assert answer.headers["x-paceline-degraded"] == "model, max_tokens"
    assert json.loads(spare.seen[0].body)["max_tokens"] == 500
    assert [await degraded(stand, kind, pisvc="chat") for kind in ("model", "max_tokens")] == [1, 1]


async def test_what_a_tenant_may_not_use_does_not_answer_it(stand: Stand, make_worker: MakeWorker) -> None:
    worker, spare = await busy_service(stand, make_worker, model="spare")
    stand.cluster.put(manifests.tenant(services=["default/chat"]))
    await until(lambda: stand.process.registry.snapshot.tenants["team"].services == ("default/chat",))
    async with overloaded(stand, worker):
        asked = asyncio.create_task(ask(stand))
        await waiting(stand, 1)
    answer = await asked
    assert (answer.status_code, "x-paceline-degraded" in answer.headers, spare.seen) == (200, False, [])


async def test_a_smaller_model_that_is_full_or_gone_answers_nothing(stand: Stand, make_worker: MakeWorker) -> None:
    worker, spare = await busy_service(stand, make_worker, model="spare")
    stand.cluster.serve(SPARE)
    await until(lambda: not stand.process.registry.services[SPARE].pool.workers)
    async with overloaded(stand, worker):
        asked = asyncio.create_task(ask(stand))
        await waiting(stand, 1)
    assert ((await asked).status_code, spare.seen) == (200, [])
    assert await degraded(stand, "model") == 0


async def test_a_backend_for_overflow_with_room_answers_before_a_smaller_model(
    stand: Stand, make_worker: MakeWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while pressure lasts although the next request would be in time."""
    monkeypatch.setattr(pressure, "RECOVERY_S", 600.0)
    worker, spare = await busy_service(stand, make_worker, model="spare")
    other = await make_worker("o0", service="default/other")
    stand.cluster.put(manifests.service("other"))
    backends = {"service": "chat"}, {"service": "other", "when": "overflow"}
    stand.cluster.put(manifests.route("public", *backends, degrade={"after": "500ms", "model": "spare"}))
    stand.work(other, service="default/other")
    await stand.ready(service="default/other")
    async with overloaded(stand, worker):
        assert (await stand.queue())["overloaded"]
        assert (await ask(stand)).status_code == 200
    assert pressed(stand)
    answer = await ask(stand)
    assert (answer.status_code, "x-paceline-degraded" in answer.headers) == (200, False)
    assert (len(worker.seen), len(spare.seen), len(other.seen)) == (0, 0, 2)
    assert await diverted(stand, "overloaded") == 2
    stand.cluster.serve("default/other")
    await until(lambda: not stand.process.registry.services["default/other"].pool.workers)
    async with overloaded(stand, worker):
        assert (await ask(stand)).headers["x-paceline-degraded"] == "model"


async def test_an_overloaded_service_defers_batch_and_refuses_offline_requests(
    stand: Stand, make_worker: MakeWorker
) -> None:
    worker, _ = await busy_service(stand, make_worker)
    before = asyncio.create_task(ask(stand, OFFLINE))
    assert (await before).status_code == 200
    async with overloaded(stand, worker):
        refused = await ask(stand, OFFLINE)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "no_capacity")
        assert (refused.headers["retry-after"], refused.headers["x-should-retry"]) == ("60", "true")
        batch = asyncio.create_task(ask(stand, BATCH, user="batch"))
        await waiting(stand, 1)
        urgent = [asyncio.create_task(ask(stand, user="interactive")) for _ in range(4)]
        await waiting(stand, 5)
    assert [answer.status_code for answer in await asyncio.gather(batch, *urgent)] == [200] * 5
    assert [json.loads(seen.body)["user"] for seen in worker.seen] == ["interactive"] * 4 + ["batch"]
    shed = {"reason": "overloaded", "class": "offline"}
    assert await stand.metric("paceline_queue_shed_total", **shed) == 1
    await until(lambda: not pressed(stand))
    assert (await ask(stand, OFFLINE)).status_code == 200
    assert await degraded(stand, "model") == await degraded(stand, "max_tokens") == 0
    await nothing_is_left(stand)


async def test_without_a_promise_nothing_is_overloaded(stand: Stand, make_worker: MakeWorker) -> None:
    worker, _ = await busy_service(stand, make_worker, model="spare")
    service = stand.process.registry.services["default/chat"]
    stand.cluster.put(manifests.service())
    await until(lambda: not service.spec.targets)
    worker.script = lambda _: Script(stall_after=1)
    asked = [asyncio.create_task(ask(stand)) for _ in range(4)]
    await waiting(stand, 2)
    for _ in range(20):
        service.observe(stand.process.requests.now())
        await asyncio.sleep(0.05)
    assert not pressed(stand)
    assert await stand.metric("paceline_degraded_requests_total") == 0
    for each in asked:
        each.cancel()
    await asyncio.gather(*asked, return_exceptions=True)


async def test_a_burning_error_budget_degrades_a_route_that_asks_for_it(stand: Stand, make_worker: MakeWorker) -> None:
    worker, spare = await busy_service(stand, make_worker, model="spare", trigger="burn")
    service = stand.process.registry.services["default/chat"]
    before, burning = service.spec, service.pressures["burn"]
    stand.cluster.put(manifests.service(classes={"interactive": {"slo": {"ttft": {"p95": "60s"}}}}))
    await until(lambda: service.spec is not before)
    await asyncio.gather(*(ask(stand) for _ in range(20)))
    assert (len(spare.seen), burning.holds(0.0)) == (0, False)
    worker.script = lambda _: Script(status=500)
    for _ in range(2):
        assert (await ask(stand, model="chat")).status_code == 500
    await until(lambda: burning.holds(0.5))
    answer = await ask(stand)
    assert (answer.headers["x-paceline-degraded"], len(spare.seen)) == ("model", 1)


async def test_log_and_trace_say_how_an_answer_was_less(tmp_path: Path, make_worker: MakeWorker) -> None:
    stream = io.StringIO()
    with collecting() as collector:
        outlets = LogSinks(BackgroundWriter(stream), writer(collector.endpoint))
        async with gateway(tmp_path, outlets=outlets) as stand:
            worker, _ = await busy_service(stand, make_worker, model="spare", maxTokens=8)
            async with overloaded(stand, worker):
                assert (await ask(stand, SAMPLED)).status_code == 200
            await nothing_is_left(stand)
            stand.process.requests.sweep()
            await until(lambda: stream.getvalue().count("\n") == 4)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["degraded"] for line in lines if "degraded" in line] == [["model", "max_tokens"]]
    (root,) = [span for span in collector.spans if span.parent_id == CALLER]
    assert root.attributes["paceline.degraded"] == ["model", "max_tokens"]

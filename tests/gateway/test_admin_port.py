"""The admin port: health, readiness, metrics, the demand stream, and the workers as the gateway sees them."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
from tests.gateway import manifests
from tests.gateway.conftest import MakeWorker
from tests.gateway.stand import CHAT, PATIENCE_S, Stand, until
from tests.gateway.worker_double import Script

from paceline_core.auth import TokenSigner, new_signing_key
from paceline_core.auth.internal_token import GATEWAY_AUDIENCE, HEADER
from paceline_core.clock import SystemClock
from paceline_core.registry import METRICS
from paceline_core.wire import ClassDemand, DemandReport, decode

pytestmark = pytest.mark.real


async def reports(response: httpx.Response) -> AsyncIterator[DemandReport]:
    async with asyncio.timeout(PATIENCE_S):
        async for line in response.aiter_lines():
            yield decode(DemandReport, line.encode())


def interactive(report: DemandReport) -> ClassDemand | None:
    for service in report.services:
        for cls in service.classes:
            if (service.service, cls.name) == ("default/chat", "interactive"):
                return cls
    return None


async def test_health_and_readiness(stand: Stand) -> None:
    assert (await stand.admin.get("/healthz")).status_code == 200
    assert (await stand.admin.get("/readyz")).status_code == 200


async def test_every_family_of_the_registry_is_there_from_the_start(stand: Stand) -> None:
    text = (await stand.admin.get("/metrics")).text
    for row in METRICS.values():
        if row.owner == "gateway":
            assert f"# TYPE {row.name} {row.kind}" in text
    assert (
        'paceline_requests_total{class="interactive",outcome="ok",pisvc="chat",pisvc_namespace="default"} 0.0' in text
    )


async def test_a_changed_target_is_exported_and_the_old_one_removed(stand: Stand) -> None:
    for limit, seconds in (("500ms", 0.5), ("2s", 2.0)):
        slo = {"interactive": {"slo": {"ttft": {"p95": limit}}}}
        stand.cluster.put(manifests.service(classes=slo))

        async def shown(seconds: float = seconds) -> bool:
            return await stand.metric("paceline_slo_threshold_seconds", slo="ttft_p95") == seconds

        await until(shown)
    stand.cluster.put(manifests.service())

    async def forgotten() -> bool:
        return "paceline_slo_threshold_seconds{" not in (await stand.admin.get("/metrics")).text

    await until(forgotten)


async def test_demand_is_for_the_autoscaler_alone(stand: Stand) -> None:
    stranger = TokenSigner(new_signing_key(), "autoscaler")
    now = SystemClock().utc()
    for headers in ({}, {HEADER: "x"}, {HEADER: stranger.token(GATEWAY_AUDIENCE, now)}):
        response = await stand.admin.get("/internal/demand", headers=headers)
        assert (response.status_code, response.json()["error"]["code"]) == (401, "invalid_api_key")
    for headers in (
        stand.autoscaler_headers("default/chat"),
        {HEADER: TokenSigner(stand.signing_key, "autoscaler").token(GATEWAY_AUDIENCE, now)},
    ):
        assert (await stand.admin.get("/internal/demand", headers=headers)).status_code == 401


async def test_a_held_request_is_reported_at_once(stand: Stand) -> None:
    async with stand.admin.stream("GET", "/internal/demand", headers=stand.autoscaler_headers()) as response:
        lines = reports(response)
        first = await anext(lines)
        assert interactive(first) is None
        post = asyncio.create_task(stand.client.post("/v1/chat/completions", json=CHAT))
        second = await anext(lines)
        seen = interactive(second)
        assert seen is not None
        assert (seen.arrivals, seen.queued, seen.held, seen.in_flight) == (1, 1, 1, 0)
        assert seen.queued_prompt_tokens > 0
        assert seen.nearest_deadline_s is not None
        assert second.seq == first.seq + 1
        assert await stand.metric("paceline_demand_subscribers") == 1
        post.cancel()


async def test_demand_counts_what_was_answered(stand: Stand, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    stand.work(worker)
    await stand.ready()
    for body in (CHAT, CHAT | {"stream": True}, CHAT | {"model": "nonsense"}):
        await stand.client.post("/v1/chat/completions", json=body)
    async with stand.admin.stream("GET", "/internal/demand", headers=stand.autoscaler_headers()) as response:
        report = await anext(reports(response))
    seen = interactive(report)
    assert seen is not None
    assert (seen.arrivals, seen.completed, seen.output_tokens, seen.good, seen.bad) == (2, 2, 8, 2, 0)
    assert report.services[0].workers == 1


async def test_the_workers_are_shown_as_they_are_seen(stand: Stand, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    worker.script = lambda _: Script(stall_after=0)
    stand.work(worker)
    await stand.ready()
    post = asyncio.create_task(stand.client.post("/v1/chat/completions", json=CHAT))
    await until(lambda: len(worker.seen) == 1)
    (shown,) = await stand.workers()
    assert (shown["worker"], shown["state"], shown["in_flight"], shown["slots"]) == ("w0", "ready", 1, 16)
    assert shown["backlog_tokens"] > 0
    post.cancel()


async def test_a_worker_whose_stream_is_cut_is_silent_and_comes_back(stand: Stand, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    stand.work(worker)
    await stand.ready()
    port = worker.port
    await worker.stop()
    await stand.ready(0)
    assert await stand.metric("paceline_upstream_workers", state="silent") == 1
    await worker.start(port)
    await stand.ready(1)


async def test_a_worker_of_another_service_is_not_believed(stand: Stand, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    worker.report = worker.report.model_copy(update={"service": "other/chat"})
    stand.work(worker)
    await until(lambda: worker.connections >= 2)
    assert await stand.metric("paceline_upstream_workers", state="starting") == 1

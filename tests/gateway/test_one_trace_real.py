"""One trace from the caller through the gateway to its workers, at a real collector."""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from tests.gateway import manifests
from tests.gateway.conftest import MakeWorker
from tests.gateway.replicas import EMULATED, holder, replicas
from tests.gateway.stand import CHAT, STREAM, Stand, gateway, plain_client, until
from tests.gateway.worker_double import Script
from tests.prometheus_server import prometheus_server
from tests.worker.collector import Collector, Span, collecting

from paceline_core.auth import new_signing_key
from paceline_core.clock import SystemClock
from paceline_core.telemetry.span_queue import SpanQueue, resource
from paceline_gateway.telemetry.metrics import LogSinks
from paceline_gateway.telemetry.spans import RequestSpanWriter

pytestmark = pytest.mark.real
KEY = new_signing_key()
PATH = "/v1/chat/completions"
TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED = {"traceparent": f"00-{TRACE}-{CALLER}-01", "x-request-id": "mine"}
LONG: dict[str, Any] = STREAM | {"max_tokens": 30, "ignore_eos": True}


def writer(endpoint: str, timeout_s: float = 10.0) -> RequestSpanWriter:
    exporter = OTLPSpanExporter(f"{endpoint}/v1/traces", timeout=timeout_s)
    return RequestSpanWriter(
        SpanQueue(exporter, delay_s=0.0), resource({"service.name": "paceline-gateway"}), SystemClock()
    )


@contextlib.asynccontextmanager
async def traced(directory: Path, collector: Collector, **more: Any) -> AsyncIterator[Stand]:
    async with gateway(directory, outlets=LogSinks(spans=writer(collector.endpoint)), **more) as stand:
        yield stand


def children(spans: list[Span], parent: str) -> list[Span]:
    return sorted((span for span in spans if span.parent_id == parent), key=lambda span: span.start)


async def test_gateway_and_worker_are_one_tree_also_across_a_resume(tmp_path: Path) -> None:
    with (
        collecting() as collector,
        replicas(tmp_path, 2, KEY, {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint}, engine=EMULATED) as workers,
    ):
        async with traced(tmp_path, collector, signing_key=KEY) as stand:
            await stand.serve([worker.endpoint for worker in workers])
            asked = asyncio.create_task(stand.client.post(PATH, json=LONG, headers=SAMPLED))
            await until(lambda: any(call.machine.meter.output > 3 for call in stand.calls))
            assert await asyncio.to_thread(holder(stand, workers).evacuate) == 1
            assert (await asked).text.endswith("data: [DONE]\n\n")
        await until(lambda: [span.name for span in collector.spans].count("chat chat") == 3)
    spans = collector.spans
    assert {span.trace_id for span in spans} == {TRACE}
    assert "What is TTFT" not in str(spans)
    (root,) = children(spans, CALLER)
    assert (root.name, root.error, root.events) == ("chat chat", False, ["first_token"])
    told = root.attributes
    assert (told["gen_ai.request.id"], told["paceline.outcome"], told["paceline.resumed"]) == ("mine", "ok", 1)
    assert (told["gen_ai.usage.output_tokens"], told["paceline.tenant"]) == (30, "team")
    parts = children(spans, root.span_id)
    assert [part.name for part in parts] == ["admit", "queue", "attempt", "queue", "attempt"]
    assert parts[0].start == root.start
    assert parts[-1].end <= root.end
    assert [part.end for part in parts[:-1]] == pytest.approx([part.start for part in parts[1:]], abs=1e-3)
    first, second = parts[2], parts[4]
    assert (first.attributes["paceline.resumed"], second.attributes["paceline.resumed"]) == (False, True)
    assert (first.error, second.error) == (True, False)
    for attempt in (first, second):
        (worker,) = children(spans, attempt.span_id)
        assert worker.resource["service.instance.id"] == attempt.attributes["server.address"]
        assert children(spans, worker.span_id)


async def test_without_a_caller_the_services_ratio_decides(tmp_path: Path, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    with collecting() as collector:
        async with traced(tmp_path, collector) as stand:
            stand.work(worker)
            await stand.client.post(PATH, json=CHAT)
            stand.cluster.put(manifests.service(telemetry={"tracing": {"sampleRatio": 1.0}}))
            await until(lambda: stand.process.registry.snapshot.services["default/chat"].sample_ratio == 1.0)
            await stand.client.post(PATH, json=CHAT)
            await stand.client.post(PATH, json=CHAT, headers={"traceparent": f"00-{TRACE}-{CALLER}-00"})
    (root,) = [span for span in collector.spans if not span.parent_id]
    (attempt,) = [span for span in collector.spans if span.name == "attempt"]
    assert [seen.headers.get("traceparent") for seen in worker.seen] == [
        None,
        f"00-{root.trace_id}-{attempt.span_id}-01",
        f"00-{TRACE}-{CALLER}-00",
    ]


async def test_prometheus_finds_the_trace_of_a_traced_request_behind_its_latencies(
    tmp_path: Path, make_worker: MakeWorker
) -> None:
    program = shutil.which("prometheus")
    assert program is not None, "install Prometheus: apt-get install prometheus"
    with collecting() as collector:
        async with traced(tmp_path, collector) as stand:
            stand.work(await make_worker())
            for headers in (SAMPLED, {}):
                assert (await stand.client.post(PATH, json=STREAM, headers=headers)).status_code == 200
            assert "trace_id" not in (await stand.admin.get("/metrics")).text
            target = {"targets": [f"127.0.0.1:{stand.admin.base_url.port}"]}
            job = {"job_name": "gateway", "static_configs": [target]}
            config = {"global": {"scrape_interval": "1s"}, "scrape_configs": [job]}
            with prometheus_server(program, tmp_path, config, "--enable-feature=exemplar-storage") as url:
                async with plain_client(base_url=url) as prometheus:
                    for name in ("paceline_request_ttft_seconds", "paceline_request_duration_seconds"):
                        await until(partial(_has_exemplars, prometheus, f"{name}_bucket"))


async def _has_exemplars(prometheus: httpx.AsyncClient, series: str) -> bool:
    asked = {"query": series, "start": "0", "end": "9999999999"}
    answer = (await prometheus.get("/api/v1/query_exemplars", params=asked)).json()
    found = [exemplar["labels"] for one in answer["data"] for exemplar in one["exemplars"]]
    return found == [{"trace_id": TRACE}]


async def test_a_request_that_fails_says_so(tmp_path: Path, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    worker.script = lambda _: Script(status=500, body="{}")
    with collecting() as collector:
        async with traced(tmp_path, collector) as stand:
            stand.work(worker)
            assert (await stand.client.post(PATH, json=CHAT, headers=SAMPLED)).status_code == 500
    (root,) = children(collector.spans, CALLER)
    assert root.error
    assert root.attributes["http.response.status_code"] == 500
    assert {span.error for span in collector.spans if span.name == "attempt"} == {True}


async def test_a_collector_that_is_away_costs_spans_and_no_request(tmp_path: Path, make_worker: MakeWorker) -> None:
    async with gateway(tmp_path, outlets=LogSinks(spans=writer("http://127.0.0.1:9", 0.1))) as stand:
        stand.work(await make_worker())
        for _ in range(3):
            assert (await stand.client.post(PATH, json=CHAT, headers=SAMPLED)).status_code == 200

        async def lost() -> bool:
            return await stand.metric("paceline_gateway_trace_dropped_spans_total") == 3 * 4

        await until(lost)

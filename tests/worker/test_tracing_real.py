"""Traces of a real worker at a real collector."""

import signal
from pathlib import Path
from typing import Any

import pytest
from tests.worker.collector import Collector, Span, collecting
from tests.worker.processes import HTTP, WorkerProcess, until, worker_process
from tests.worker.scripted_engine import Script

pytestmark = pytest.mark.real

CHAT = "/v1/chat/completions"
HELLO: dict[str, Any] = {"model": "chat", "messages": [{"role": "user", "content": "hello"}], "temperature": 0.5}
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
PAUSE_S = 0.002
"""Between two tokens: a request then takes longer than the scripted engine says of its phases."""
UNSAMPLED = {"traceparent": f"00-{TRACE}-{PARENT}-00"}


def tracing(collector: Collector) -> dict[str, str]:
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.endpoint, "OTEL_RESOURCE_ATTRIBUTES": "deployment=test"}


def ask(worker: WorkerProcess, headers: dict[str, str], **more: Any) -> dict[str, Any]:
    response = HTTP.post(worker.url + CHAT, json=HELLO | more, headers=headers)
    assert response.status_code == 200
    return dict(response.json()) if not more.get("stream") else {}


def dropped(worker: WorkerProcess) -> float:
    [line] = [
        line
        for line in HTTP.get(f"{worker.url}/metrics").text.splitlines()
        if line.startswith("paceline_trace_dropped_spans_total")
    ]
    return float(line.rpartition(" ")[2])


def tree(spans: list[Span]) -> tuple[Span, dict[str, Span]]:
    [root] = [span for span in spans if span.parent_id == PARENT]
    return root, {span.name: span for span in spans if span.parent_id == root.span_id}


def test_a_traced_request_is_one_tree_under_its_callers_span(folder: Path, reply: list[int]) -> None:
    with (
        collecting() as collector,
        worker_process(folder, Script(pause_s=PAUSE_S, reply=reply, cached=4), environ=tracing(collector)) as worker,
    ):
        worker.ready()
        answer = ask(worker, SAMPLED | {"x-request-id": "mine"})
        until(lambda: collector.spans)
    root, children = tree(collector.spans)
    spans = list(children.values())
    assert (spans[0].start, spans[-1].end) == pytest.approx((root.start, root.end), abs=1e-5)
    assert [span.end for span in spans[:-1]] == [span.start for span in spans[1:]]
    assert "hello" not in str(collector.spans)
    assert {span.trace_id for span in collector.spans} == {TRACE}
    assert len(collector.spans) == 1 + len(children)
    assert list(children) == ["tokenize", "queue", "prefill", "decode", "post"]
    assert root.name == "chat chat"
    told = root.attributes
    assert told["gen_ai.request.model"] == "chat"
    assert told["gen_ai.request.id"] == "mine"
    assert told["gen_ai.response.id"] == answer["id"]
    assert told["gen_ai.usage.input_tokens"] == answer["usage"]["prompt_tokens"]
    assert told["gen_ai.usage.output_tokens"] == answer["usage"]["completion_tokens"]
    assert told["gen_ai.usage.cached_tokens"] == 4
    assert told["gen_ai.request.temperature"] == 0.5
    assert told["gen_ai.response.finish_reasons"] == ["stop"]
    assert told["gen_ai.latency.time_in_queue"] == 0.001
    assert root.events == ["first_token"]
    assert not root.error
    assert root.resource["service.name"] == "paceline-worker"
    assert root.resource["deployment"] == "test"


def test_only_sampled_requests_are_traced(folder: Path, reply: list[int]) -> None:
    with (
        collecting() as collector,
        worker_process(folder, Script(pause_s=PAUSE_S, reply=reply), environ=tracing(collector)) as worker,
    ):
        worker.ready()
        for headers in ({}, UNSAMPLED, {"traceparent": "rubbish"}, SAMPLED):
            ask(worker, headers)
        worker.signal(signal.SIGTERM)
        assert worker.ended() == 0
    assert {span.trace_id for span in collector.spans} == {TRACE}
    tree(collector.spans)


def test_without_a_traceparent_the_ratio_decides_and_an_end_sends_what_is_queued(
    folder: Path, reply: list[int]
) -> None:
    with (
        collecting() as collector,
        worker_process(
            folder, Script(pause_s=PAUSE_S, reply=reply), environ=tracing(collector), trace_ratio=1.0
        ) as worker,
    ):
        worker.ready()
        ask(worker, {})
        worker.signal(signal.SIGTERM)
        assert worker.ended() == 0
    assert [span.name for span in collector.spans if not span.parent_id] == ["chat chat"]


def test_a_request_that_fails_says_so(folder: Path, reply: list[int]) -> None:
    script = Script(pause_s=PAUSE_S, reply=reply, fault="error", phase="decode")
    with collecting() as collector, worker_process(folder, script, environ=tracing(collector)) as worker:
        worker.ready()
        HTTP.post(worker.url + CHAT, json=HELLO | {"stream": True}, headers=SAMPLED)
        until(lambda: collector.spans)
    root, _ = tree(collector.spans)
    assert root.error
    assert root.attributes["error.type"] == "engine_failed"


def test_a_collector_that_is_away_costs_spans_and_no_request(folder: Path, reply: list[int]) -> None:
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
    with worker_process(folder, Script(pause_s=PAUSE_S, reply=reply), environ=environ) as worker:
        worker.ready()
        for _ in range(3):
            ask(worker, SAMPLED)
        until(lambda: dropped(worker) == 3 * 6 and "spans cannot be exported" in worker.said())
        assert worker.said().count("spans cannot be exported") == 1
        worker.signal(signal.SIGTERM)
        assert worker.ended() == 0

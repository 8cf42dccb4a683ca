"""A bounded queue of spans, and a worker that imports nothing for tracing that is off."""

import subprocess
import sys
import threading
from collections.abc import Sequence

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from tests.worker.harness import settings

from paceline_core.telemetry.span_queue import SpanQueue
from paceline_workers.server.serve import tracing

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}


class Stalled(SpanExporter):
    """Takes nothing before it is let go; then fails, or not."""

    def __init__(self, result: SpanExportResult = SpanExportResult.SUCCESS) -> None:
        self.entered = threading.Event()
        self.go = threading.Event()
        self.result = result
        self.taken: list[str] = []

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.entered.set()
        assert self.go.wait(10)
        self.taken += [span.name for span in spans]
        return self.result


def provider(queue: SpanQueue) -> TracerProvider:
    made = TracerProvider(shutdown_on_exit=False)
    made.add_span_processor(queue)
    return made


def test_what_does_not_fit_is_counted_and_nobody_waits() -> None:
    exporter = Stalled()
    queue = SpanQueue(exporter, limit=2, delay_s=0.0)
    made = provider(queue)
    made.get_tracer("t").start_span("first").end()
    assert exporter.entered.wait(10)
    for name in "abcd":
        made.get_tracer("t").start_span(name).end()
    assert queue.dropped == 2
    exporter.go.set()
    made.shutdown()
    assert exporter.taken == ["first", "a", "b"]
    assert queue.dropped == 2


def test_what_a_collector_does_not_take_is_counted() -> None:
    exporter = Stalled(SpanExportResult.FAILURE)
    exporter.go.set()
    queue = SpanQueue(exporter, delay_s=0.0)
    made = provider(queue)
    made.get_tracer("t").start_span("a").end()
    made.shutdown()
    assert queue.dropped == 1


def test_tracing_is_off_unless_a_collector_is_named() -> None:
    assert tracing(settings(), {}) is None
    assert tracing(settings(), ENDPOINT | {"OTEL_SDK_DISABLED": "TRUE"}) is None
    assert tracing(settings(), ENDPOINT | {"OTEL_TRACES_EXPORTER": "none"}) is None


def test_who_asks_for_traces_and_names_no_collector_is_told(caplog: pytest.LogCaptureFixture) -> None:
    assert tracing(settings(), {}) is None
    assert caplog.text == ""
    assert tracing(settings(trace_ratio=0.5), {}) is None
    assert "no request is traced: set OTEL_EXPORTER_OTLP_ENDPOINT" in caplog.text


def test_a_worker_imports_nothing_of_opentelemetry_for_tracing_that_is_off() -> None:
    code = "import sys, paceline_workers.server.serve; print([m for m in sys.modules if 'opentelemetry.sdk' in m])"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout == "[]\n"

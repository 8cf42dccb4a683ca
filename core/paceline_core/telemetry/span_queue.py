"""The span exporter's queue: bounded, with one thread, so that a slow collector costs spans, never tokens.

The SDK's own batching does not say how many spans it lost, and has no time limit when it closes.
Imported only where a process traces: it needs OpenTelemetry.
"""

import logging
import queue
import threading
import time
from collections.abc import Iterator, Mapping

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from paceline_core.telemetry import FaultLog, get_logger

LIMIT = 4096
BATCH = 512
DELAY_S = 1.0
CLOSE_S = 2.0

logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # it logs each failed attempt; we log the fault once


class SpanQueue(SpanProcessor):
    """Exports batches of ended spans, at most DELAY_S later; `dropped` counts those that did not fit or arrive."""

    def __init__(self, exporter: SpanExporter, limit: int = LIMIT, *, delay_s: float = DELAY_S) -> None:
        self._exporter = exporter
        self._delay_s = delay_s
        self._queue: queue.Queue[ReadableSpan | None] = queue.Queue(limit)
        self._overflow = 0
        self._unsent = 0
        self._complaints = FaultLog(get_logger(__name__))
        self._thread = threading.Thread(target=self._run, name="spans", daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        return self._overflow + self._unsent

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """OpenTelemetry's call; nothing to do."""

    def on_end(self, span: ReadableSpan) -> None:
        """OpenTelemetry's call: queue the span, or count it as lost."""
        try:
            self._queue.put_nowait(span)
        except queue.Full:
            self._overflow += 1

    def shutdown(self) -> None:
        """Send queued spans within CLOSE_S; the rest is lost with the process."""
        end = time.monotonic() + CLOSE_S
        try:
            self._queue.put(None, timeout=CLOSE_S)
        except queue.Full:
            return
        self._thread.join(max(end - time.monotonic(), 0.0))
        self._exporter.shutdown()

    def _run(self) -> None:
        while (first := self._queue.get()) is not None:
            batch = [first, *self._more()]
            self._export([span for span in batch if span is not None])
            if batch[-1] is None:
                return

    def _more(self) -> Iterator[ReadableSpan | None]:
        """Further spans until the batch is full or due; None at the end."""
        due = time.monotonic() + self._delay_s
        for _ in range(BATCH - 1):
            try:
                span = self._queue.get(timeout=max(due - time.monotonic(), 0.0))
            except queue.Empty:
                return
            yield span
            if span is None:
                return

    def _export(self, batch: list[ReadableSpan]) -> None:
        try:
            sent = self._exporter.export(batch) is SpanExportResult.SUCCESS
        except Exception:  # noqa: BLE001 - whatever a collector's answer does to the exporter, the worker continues
            sent = False
        if sent:
            self._complaints.end("spans cannot be exported")
        else:
            self._unsent += len(batch)
            self._complaints.begin("spans cannot be exported", "the collector did not take them")


def resource(own: Mapping[str, str]) -> Resource:
    """Our own attributes, and those of OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES, which take precedence."""
    ours, named = Resource(own), Resource.create()  # the values of OTEL_*, over defaults
    unnamed = str(named.attributes.get("service.name", "")).startswith("unknown_service")
    return named.merge(ours) if unnamed else ours.merge(named)

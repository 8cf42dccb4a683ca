"""A request's spans: one for the gateway, children for admission, each wait in the queue and each attempt at a worker.

They are made after the request's end, from timestamps. Attributes have the names of the GenAI conventions, and vLLM's
for latencies, as in the workers.
"""

import random
from collections.abc import Iterator
from typing import Self

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.util.types import AttributeValue

from paceline_core.clock import Clock
from paceline_core.registry import Outcome
from paceline_core.telemetry.span_queue import SpanQueue, resource
from paceline_gateway.request.prompt_size import EMBEDDINGS, RERANK, SCORE
from paceline_gateway.request.types import RequestRecord
from paceline_gateway.telemetry import trace
from paceline_gateway.telemetry.trace import FinishedRequest, Trace

_OPERATIONS = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "text_completion",
    "/v1/responses": "chat",
    "/v1/messages": "chat",
    EMBEDDINGS: "embeddings",
    **dict.fromkeys(SCORE, "score"),
    **dict.fromkeys(RERANK, "rerank"),
    "/v1/messages/count_tokens": "tokenize",
    "/tokenize": "tokenize",
    "/detokenize": "detokenize",
}
_SCOPE = InstrumentationScope("paceline_gateway")
_FLAGS = TraceFlags(TraceFlags.SAMPLED)
Attributes = dict[str, AttributeValue]


class RequestSpanWriter:
    """Makes spans and queues them."""

    def __init__(self, queue: SpanQueue, about: Resource, clock: Clock) -> None:
        self._queue = queue
        self._about = about
        self._clock = clock
        self._draw = random.random

    @classmethod
    def create(cls, name: str, clock: Clock) -> Self:
        """Export as OTEL_EXPORTER_OTLP_* configures it, as the gateway of this name."""
        about = resource({"service.name": "paceline-gateway", "service.instance.id": name})
        return cls(SpanQueue(OTLPSpanExporter()), about, clock)

    @property
    def dropped(self) -> int:
        return self._queue.dropped

    def begin(self, traceparent: bytes, ratio: float) -> tuple[Trace | None, bytes]:
        """The trace of a request, if sampled, and the header line for its worker if not."""
        return trace.begin(traceparent, ratio, self._draw())

    def record(self, ended: FinishedRequest) -> None:
        for span in _Spans(ended, self._about, self._clock).all():
            self._queue.on_end(span)

    def close(self) -> None:
        self._queue.shutdown()


class _Spans:
    """The spans of one request."""

    def __init__(self, ended: FinishedRequest, about: Resource, clock: Clock) -> None:
        self._ended = ended
        self._about = about
        self._zero = int((clock.utc().timestamp() - clock.monotonic()) * 1e9)

    def all(self) -> Iterator[ReadableSpan]:
        """All spans, the root first."""
        record, mine = self._ended.record, self._ended.trace
        yield self._root()
        admitted = record.ended if record.queued is None else record.queued
        yield self._span("admit", (record.received, admitted))
        for start, end in mine.waits:
            yield self._span("queue", (start, record.ended if end is None else end))
        for number, attempt in enumerate(mine.attempts, start=1):
            about: Attributes = {
                "server.address": attempt.worker,
                "paceline.attempt": number,
                "paceline.resumed": attempt.resumed,
            }
            last = attempt is mine.attempts[-1]
            status = _status(record) if last else Status(StatusCode.ERROR, "went on at another worker")
            times = (attempt.start, record.ended if attempt.end is None else attempt.end)
            yield self._span("attempt", times, about, (attempt.span_id, SpanKind.CLIENT, status))

    def _root(self) -> ReadableSpan:
        record, mine = self._ended.record, self._ended.trace
        events = [] if record.first is None else [Event("first_token", timestamp=self._moment(record.first))]
        return ReadableSpan(
            f"{_operation(self._ended)} {self._ended.model}",
            context=_context(mine.trace_id, mine.span_id),
            parent=None if mine.parent_id is None else _context(mine.trace_id, mine.parent_id, remote=True),
            resource=self._about,
            attributes=_attributes(self._ended),
            events=events,
            kind=SpanKind.SERVER,
            status=_status(record),
            start_time=self._moment(record.received),
            end_time=self._moment(record.ended),
            instrumentation_scope=_SCOPE,
        )

    def _span(
        self,
        name: str,
        times: tuple[float, float],
        attributes: Attributes | None = None,
        kind: tuple[int, SpanKind, Status] | None = None,
    ) -> ReadableSpan:
        mine = self._ended.trace
        span_id, role, status = kind or (trace.new_span_id(), SpanKind.INTERNAL, Status())
        return ReadableSpan(
            name,
            context=_context(mine.trace_id, span_id),
            parent=_context(mine.trace_id, mine.span_id),
            resource=self._about,
            attributes=attributes,
            kind=role,
            status=status,
            start_time=self._moment(times[0]),
            end_time=self._moment(times[1]),
            instrumentation_scope=_SCOPE,
        )

    def _moment(self, monotonic: float) -> int:
        return self._zero + int(monotonic * 1e9)


def _context(trace_id: int, span_id: int, *, remote: bool = False) -> SpanContext:
    return SpanContext(trace_id, span_id, is_remote=remote, trace_flags=_FLAGS)


def _operation(ended: FinishedRequest) -> str:
    return _OPERATIONS.get(ended.path, "generate_content")


def _status(record: RequestRecord) -> Status:
    """A request that the client cancelled or got wrong has no error status."""
    fine = record.outcome in {Outcome.OK, Outcome.CANCELLED, Outcome.CLIENT_ERROR}
    return Status() if fine else Status(StatusCode.ERROR, record.outcome.value)


def _attributes(ended: FinishedRequest) -> Attributes:
    record, meter = ended.record, ended.record.meter
    found: Attributes = {
        "gen_ai.operation.name": _operation(ended),
        "gen_ai.provider.name": "paceline",
        "gen_ai.request.model": ended.model,
        "gen_ai.request.id": ended.request_id,
        "gen_ai.usage.input_tokens": meter.prompt,
        "gen_ai.usage.output_tokens": meter.output,
        "gen_ai.usage.cached_tokens": meter.cached,
        "gen_ai.latency.e2e": record.e2e,
        "http.response.status_code": record.status,
        "paceline.tenant": record.tenant,
        "paceline.outcome": record.outcome.value,
        "paceline.attempts": record.attempts,
        "paceline.resumed": record.resumed,
    }
    if record.terms is not None:
        found |= {"paceline.service": record.terms.service, "paceline.class": record.terms.request_class.value}
        if record.terms.degraded:
            found["paceline.degraded"] = [kind.value for kind in record.terms.degraded]
    if record.ttft is not None:
        found["gen_ai.latency.time_to_first_token"] = record.ttft
    if record.waited is not None:
        found["gen_ai.latency.time_in_queue"] = record.waited
    return found | ({"error.type": record.code} if record.code else {})

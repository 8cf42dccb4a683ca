"""A request's spans: one for the worker, a child for each phase; written after its end, from timestamps.

Attributes have the names of the GenAI conventions and, for latencies, vLLM's. A request with a sampled traceparent is
always traced, one with an unsampled traceparent never, one without a traceparent by chance, at `trace_ratio`.
Known hole: the parts of a phase before and after a preemption form one span.
"""

from collections.abc import Mapping
from datetime import datetime
from itertools import accumulate, pairwise
from typing import Self

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from paceline_core.registry import Phase
from paceline_core.telemetry.span_queue import SpanQueue, resource
from paceline_workers.config import WorkerConfig
from paceline_workers.server.telemetry.request_metrics import FinishedGeneration

_PROPAGATOR = TraceContextTextMapPropagator()
_OPERATIONS = {"chat.completion": "chat", "text_completion": "text_completion"}
_LATENCIES = {
    "gen_ai.latency.time_in_queue": Phase.QUEUE,
    "gen_ai.latency.time_in_model_prefill": Phase.PREFILL,
    "gen_ai.latency.time_in_model_decode": Phase.DECODE,
}


class GenerationSpanWriter:
    """Makes spans and queues them."""

    def __init__(self, queue: SpanQueue, provider: TracerProvider) -> None:
        self._queue = queue
        self._provider = provider
        self._tracer = provider.get_tracer("paceline_workers")

    @classmethod
    def create(cls, config: WorkerConfig) -> Self:
        """Export as OTEL_EXPORTER_OTLP_* sets; OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES add attributes."""
        queue = SpanQueue(OTLPSpanExporter())
        provider = TracerProvider(
            resource=resource(_own(config)),
            sampler=ParentBased(TraceIdRatioBased(config.trace_ratio)),
            shutdown_on_exit=False,
        )
        provider.add_span_processor(queue)
        return cls(queue, provider)

    @property
    def dropped(self) -> int:
        """Spans that were lost so far."""
        return self._queue.dropped

    def record(self, ended: FinishedGeneration) -> None:
        """Queue the spans of a request."""
        came = _nanoseconds(ended.utc, ended.run.watch.came - ended.now)
        name = f"{_operation(ended)} {ended.run.job.writer.model}"
        context = _PROPAGATOR.extract({"traceparent": ended.caller.traceparent})
        root = self._tracer.start_span(name, context, SpanKind.SERVER, start_time=came)
        if root.is_recording():
            root.set_attributes(_attributes(ended))
            self._phases(root, came, ended)
            if (first := ended.run.watch.first) is not None:
                root.add_event("first_token", timestamp=_nanoseconds(ended.utc, first - ended.now))
            if ended.error:
                root.set_attribute("error.type", ended.error)
                root.set_status(Status(StatusCode.ERROR, ended.error))
        root.end(_nanoseconds(ended.utc, 0.0))

    def close(self) -> None:
        """Send what is queued, for a moment."""
        self._provider.shutdown()

    def _phases(self, root: Span, came: int, ended: FinishedGeneration) -> None:
        context = trace.set_span_in_context(root)
        moments = [came + int(1e9 * elapsed) for elapsed in accumulate(ended.spent.values(), initial=0.0)]
        for (phase, seconds), (start, end) in zip(ended.spent.items(), pairwise(moments), strict=True):
            if seconds > 0:
                self._tracer.start_span(phase.value, context, start_time=start).end(end)


def _own(config: WorkerConfig) -> dict[str, str]:
    namespace, _, service = config.service.rpartition("/")
    return {
        "service.name": "paceline-worker",
        "service.namespace": namespace,
        "service.instance.id": config.name,
        "paceline.service": service,
        "paceline.revision": config.revision,
        "paceline.pool": config.pool,
    }


def _operation(ended: FinishedGeneration) -> str:
    return _OPERATIONS.get(ended.run.job.writer.kind.object, "generate_content")


def _attributes(ended: FinishedGeneration) -> Mapping[str, AttributeValue]:
    job, watch = ended.run.job, ended.run.watch
    submit, usage = job.choices[0].submit, job.usage()
    attributes: dict[str, AttributeValue] = {
        "gen_ai.operation.name": _operation(ended),
        "gen_ai.provider.name": "paceline",
        "gen_ai.request.model": job.writer.model,
        "gen_ai.response.model": job.writer.model,
        "gen_ai.response.id": job.writer.id,
        "gen_ai.response.finish_reasons": list(ended.run.ends.values()),
        "gen_ai.request.id": ended.caller.request_id,
        "gen_ai.request.choice.count": job.best,
        "gen_ai.request.max_tokens": submit.max_tokens,
        "gen_ai.request.temperature": submit.sampling.temperature,
        "gen_ai.request.top_p": submit.sampling.top_p,
        "gen_ai.usage.input_tokens": usage.prompt_tokens,
        "gen_ai.usage.output_tokens": usage.completion_tokens,
        "gen_ai.usage.cached_tokens": usage.prompt_tokens_details.cached_tokens,
        "gen_ai.latency.e2e": ended.now - watch.came,
        "paceline.class": submit.request_class.value,
    }
    if watch.first is not None:
        attributes["gen_ai.latency.time_to_first_token"] = watch.first - watch.came
    return attributes | {name: ended.spent[phase] for name, phase in _LATENCIES.items()}


def _nanoseconds(utc: datetime, ahead: float) -> int:
    return int(utc.timestamp() * 1e9) + int(ahead * 1e9)

"""Counts and traces each request: tokens as they arrive, and at its end how its time was spent.

Times and sizes cover requests that ended well; finish reasons and token counts cover all requests that began. Spans are
made from plain timestamps after the last byte. If tracing is off (`paceline_core.config`), OpenTelemetry is not
imported and requests do no work for it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from paceline_core.clock import Clock
from paceline_core.errors import Code
from paceline_core.registry import Phase
from paceline_core.telemetry import Histogram, Metrics, get_logger
from paceline_workers.server.handlers.active_generation import ActiveGeneration, Phases, TokenMeter
from paceline_workers.server.http.caller import Caller

_log = get_logger(__name__)
FINISHES = ("stop", "length", "content_filter", "abort", "error")
_OURS = frozenset({Code.ENGINE_FAILED, Code.INTERNAL_ERROR, Code.STREAM_LOST})
_KINDS = ("input", "cached", "output", "longest", "limit")


@dataclass(frozen=True, slots=True)
class FinishedGeneration:
    """A request that has ended: `now` and `utc` are the same moment, `error` is "" or the code of its error."""

    run: ActiveGeneration
    caller: Caller
    spent: Phases
    now: float
    utc: datetime
    error: str


class GenerationTracing(Protocol):
    """Receives requests that have ended."""

    @property
    def dropped(self) -> int:
        """Spans that were lost so far."""

    def record(self, ended: FinishedGeneration) -> None:
        """Queue the spans of a request; never waits, never raises."""

    def close(self) -> None:
        """Send what is queued, for a moment; blocks."""


class RequestMetrics:
    """A worker's metrics of its requests; their stopwatches share `meter`. `tracing` is None if it is off."""

    def __init__(self, metrics: Metrics, labels: Sequence[str], tracing: GenerationTracing | None = None) -> None:
        self._tracing = tracing
        self._ends = {name: metrics.counter("paceline_worker_sequences_total", *labels, name) for name in FINISHES}
        self._tokens = {
            kind: metrics.counter("paceline_worker_tokens_total", *labels, kind)
            for kind in ("input", "cached", "output")
        }
        self._sizes = {kind: metrics.histogram("paceline_worker_request_tokens", *labels, kind) for kind in _KINDS}
        self._choices = metrics.histogram("paceline_worker_request_choices", *labels)
        self._duration = metrics.histogram("paceline_worker_duration_seconds", *labels)
        self._tpot = metrics.histogram("paceline_worker_tpot_seconds", *labels)
        self._phases: dict[Phase, Histogram] = {
            phase: metrics.histogram("paceline_worker_phase_seconds", *labels, phase)
            for phase in Phase
            if phase not in {Phase.ADMIT, Phase.NETWORK}
        }
        self._dropped = metrics.counter("paceline_trace_dropped_spans_total", *labels)
        self._counted_output = self._counted_dropped = 0
        self.meter = TokenMeter(
            metrics.histogram("paceline_worker_ttft_seconds", *labels),
            metrics.histogram("paceline_worker_itl_seconds", *labels),
        )

    def ended(self, run: ActiveGeneration, caller: Caller, clock: Clock, error: str) -> None:
        """Count a request that has ended; `error` is "" or the code of its error."""
        now, utc = clock.monotonic(), clock.utc()
        spent, watch, choices, usage = run.spent(now), run.watch, run.job.choices, run.job.usage()
        for finish in run.ends.values():
            self._ends[finish].inc()
        self._ends["error" if error in _OURS else "abort"].inc(len(run.open))
        cached = usage.prompt_tokens_details.cached_tokens
        self._tokens["input"].inc(usage.prompt_tokens)
        self._tokens["cached"].inc(cached)
        if not error:
            fresh = [choice.output.tokens - len(choice.submit.produced) for choice in choices]
            self._duration.observe(now - watch.came)
            for phase, seconds in spent.items():
                self._phases[phase].observe(seconds)
            if watch.first is not None and max(fresh) > 1:
                self._tpot.observe((watch.last - watch.first) / (max(fresh) - 1))
            self._choices.observe(len(choices))
            sizes = (usage.prompt_tokens, cached, sum(fresh), max(fresh), choices[0].submit.max_tokens)
            for kind, size in zip(_KINDS, sizes, strict=True):
                self._sizes[kind].observe(size)
        if self._tracing is not None:
            self._tracing.record(FinishedGeneration(run, caller, spent, now, utc, error))

    def embedded(self, prompt: int, cached: int) -> None:
        """Count the tokens of a request for embeddings."""
        self._tokens["input"].inc(prompt)
        self._tokens["cached"].inc(cached)

    def settle(self) -> None:
        """Before a scrape: export what is only summed while tokens flow."""
        output, self._counted_output = self.meter.output - self._counted_output, self.meter.output
        self._tokens["output"].inc(output)
        if self._tracing is not None:
            dropped = self._tracing.dropped
            self._dropped.inc(dropped - self._counted_dropped)
            self._counted_dropped = dropped

    def close(self) -> None:
        """Send the queued spans, for a moment; blocks."""
        if self._tracing is not None:
            self._tracing.close()

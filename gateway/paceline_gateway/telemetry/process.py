"""What the process has open and what it could not tell: gauges read at the scrape, counters brought up to date."""

from dataclasses import dataclass
from functools import partial

from paceline_core.registry.enums import ClientLimit
from paceline_core.telemetry import BackgroundWriter, Metrics
from paceline_gateway.http.server import Server
from paceline_gateway.telemetry.trace import NoTracing, RequestTracing

_OFF = NoTracing()


@dataclass(frozen=True, slots=True)
class LogSinks:
    """Where a gateway tells what is no metric: log lines, and spans of traced requests. By default nowhere."""

    lines: BackgroundWriter | None = None
    spans: RequestTracing = _OFF


class ProcessMetrics:
    """Connections, what is held for them, lines and spans that were lost."""

    def __init__(self, metrics: Metrics, server: Server, outlets: LogSinks) -> None:
        for kind in ("http", "websocket"):
            now = partial(server.count, websocket=kind == "websocket")
            metrics.gauge("paceline_gateway_connections", kind).set_function(now)
        metrics.gauge("paceline_gateway_held_bytes").set_function(lambda: server.memory.used)
        self._lines = metrics.counter("paceline_gateway_log_dropped_lines_total")
        self._spans = metrics.counter("paceline_gateway_trace_dropped_spans_total")
        self._outlets = outlets
        self._server = server
        self._limited = {limit: metrics.counter("paceline_gateway_limited_total", limit) for limit in ClientLimit}
        self._counted = dict.fromkeys(ClientLimit, 0)
        self._told = (0, 0)

    def show(self) -> None:
        """Bring the counters up to date."""
        lines, spans = self._outlets.lines, self._outlets.spans
        before, self._told = self._told, (0 if lines is None else lines.lost, spans.dropped)
        self._lines.inc(self._told[0] - before[0])
        self._spans.inc(self._told[1] - before[1])
        counts = self._server.limited()
        for limit, counter in self._limited.items():
            counter.inc(counts[limit] - self._counted[limit])
        self._counted = counts

"""What the process has open and what it could not log: gauges read at the scrape, a counter brought up to date."""

from functools import partial

from paceline_core.telemetry import Metrics, Outlet
from paceline_gateway.http.server import Server


class ProcessSeries:
    """Connections, what is held for them, and lines that were lost."""

    def __init__(self, metrics: Metrics, server: Server, outlet: Outlet | None) -> None:
        for kind in ("http", "websocket"):
            now = partial(server.count, websocket=kind == "websocket")
            metrics.gauge("paceline_gateway_connections", kind).set_function(now)
        metrics.gauge("paceline_gateway_held_bytes").set_function(lambda: server.memory.used)
        self._lost = metrics.counter("paceline_gateway_log_dropped_lines_total")
        self._outlet = outlet
        self._told = 0

    def show(self) -> None:
        """Bring the counter up to date."""
        if self._outlet is not None:
            lost = self._outlet.lost
            self._lost.inc(lost - self._told)
            self._told = lost

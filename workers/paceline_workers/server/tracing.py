"""Whether requests are traced, and what a traced one is known by when it has ended.

On where OTEL_EXPORTER_OTLP_ENDPOINT (or its `_TRACES_` form) names a collector. Off, nothing of OpenTelemetry is
imported and no request does anything for it. Spans are made of plain timestamps after the last byte.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from paceline_core.telemetry import get_logger
from paceline_workers.config import WorkerConfig
from paceline_workers.server.callers import Caller
from paceline_workers.server.phases import Phases
from paceline_workers.server.run import Run

_log = get_logger(__name__)
ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


@dataclass(frozen=True, slots=True)
class Ended:
    """A request that is over: `now` and `utc` are the same moment, `error` is "" or the code it ended with."""

    run: Run
    caller: Caller
    spent: Phases
    now: float
    utc: datetime
    error: str


class Tracing(Protocol):
    """Where ended requests go."""

    @property
    def dropped(self) -> int:
        """Spans that were lost so far."""
        ...

    def record(self, ended: Ended) -> None:
        """Queue the spans of a request; never waits, never raises."""
        ...

    def close(self) -> None:
        """Send what is queued, for a moment; blocks."""
        ...


def tracing(config: WorkerConfig, environ: Mapping[str, str]) -> Tracing | None:
    """As the environment says; None for off."""
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true" or environ.get("OTEL_TRACES_EXPORTER") == "none":
        return None
    if not any(environ.get(name) for name in ENDPOINTS):
        if config.trace_ratio:
            _log.warning("no request is traced: set OTEL_EXPORTER_OTLP_ENDPOINT to the address of a collector")
        return None
    try:
        from paceline_workers.server.spans import SpanWriter  # noqa: PLC0415 - none of it where tracing is off
    except ImportError as error:
        _log.warning("no request is traced: install paceline[tracing]", extra={"reason": str(error)})
        return None
    return SpanWriter.create(config)

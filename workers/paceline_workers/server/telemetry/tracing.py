"""Where ended requests are traced, and whether: spans are made of plain timestamps after the last byte.

Off (`paceline_core.config`), nothing of OpenTelemetry is imported and no request does anything for it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from paceline_core.config import collector_configured, tracing_enabled
from paceline_core.telemetry import get_logger
from paceline_workers.config import WorkerConfig
from paceline_workers.server.handlers.active_generation import ActiveGeneration
from paceline_workers.server.http.caller import Caller
from paceline_workers.server.phases import Phases

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class FinishedGeneration:
    """A request that is over: `now` and `utc` are the same moment, `error` is "" or the code it ended with."""

    run: ActiveGeneration
    caller: Caller
    spent: Phases
    now: float
    utc: datetime
    error: str


class GenerationTracing(Protocol):
    """Where ended requests go."""

    @property
    def dropped(self) -> int:
        """Spans that were lost so far."""
        ...

    def record(self, ended: FinishedGeneration) -> None:
        """Queue the spans of a request; never waits, never raises."""
        ...

    def close(self) -> None:
        """Send what is queued, for a moment; blocks."""
        ...


def tracing(config: WorkerConfig, environ: Mapping[str, str]) -> GenerationTracing | None:
    """As the environment says; None for off."""
    if not tracing_enabled(environ):
        return None
    if not collector_configured(environ):
        if config.trace_ratio:
            _log.warning("no request is traced: set OTEL_EXPORTER_OTLP_ENDPOINT to the address of a collector")
        return None
    try:
        from paceline_workers.server.telemetry.spans import GenerationSpanWriter  # noqa: PLC0415 - none of it where tracing is off
    except ImportError as error:
        _log.warning("no request is traced: install paceline[tracing]", extra={"reason": str(error)})
        return None
    return GenerationSpanWriter.create(config)

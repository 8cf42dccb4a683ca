"""Whether requests are traced.

Off (`paceline_core.telemetry.tracing`), nothing of OpenTelemetry is imported and no request does anything for it.
"""

from collections.abc import Mapping

from paceline_core.telemetry import get_logger
from paceline_core.telemetry.tracing import collector_named, wished
from paceline_workers.config import WorkerConfig
from paceline_workers.server.trace import GenerationTracing

_log = get_logger(__name__)


def tracing(config: WorkerConfig, environ: Mapping[str, str]) -> GenerationTracing | None:
    """As the environment says; None for off."""
    if not wished(environ):
        return None
    if not collector_named(environ):
        if config.trace_ratio:
            _log.warning("no request is traced: set OTEL_EXPORTER_OTLP_ENDPOINT to the address of a collector")
        return None
    try:
        from paceline_workers.server.spans import GenerationSpanWriter  # noqa: PLC0415 - none of it where tracing is off
    except ImportError as error:
        _log.warning("no request is traced: install paceline[tracing]", extra={"reason": str(error)})
        return None
    return GenerationSpanWriter.create(config)

"""Whether this gateway traces. Off, nothing of OpenTelemetry is imported and a request does nothing for it."""

from collections.abc import Mapping

from paceline_core.clock import Clock
from paceline_core.telemetry import get_logger
from paceline_core.telemetry.tracing import collector_named, wished
from paceline_gateway.telemetry.trace import NoTracing, RequestTracing

_log = get_logger(__name__)


def tracing(name: str, clock: Clock, environ: Mapping[str, str]) -> RequestTracing:
    """As the environment says."""
    if not wished(environ) or not collector_named(environ):
        return NoTracing()
    try:
        from paceline_gateway.telemetry.spans import RequestSpanWriter  # noqa: PLC0415 - none of it where tracing is off
    except ImportError as error:
        _log.warning("no request is traced: install paceline[tracing]", extra={"reason": str(error)})
        return NoTracing()
    return RequestSpanWriter.create(name, clock)

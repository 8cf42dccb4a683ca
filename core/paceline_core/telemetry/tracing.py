"""Whether a process traces, and whose trace a request is part of. Nothing here needs OpenTelemetry.

On where OTEL_EXPORTER_OTLP_ENDPOINT (or its `_TRACES_` form) names a collector.
"""

from collections.abc import Mapping

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")


def enabled(environ: Mapping[str, str]) -> bool:
    """Whether tracing is not switched off."""
    return environ.get("OTEL_SDK_DISABLED", "").lower() != "true" and environ.get("OTEL_TRACES_EXPORTER") != "none"


def collector_named(environ: Mapping[str, str]) -> bool:
    """Whether a collector is configured."""
    return any(environ.get(name) for name in ENDPOINTS)

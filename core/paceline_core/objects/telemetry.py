"""`spec.telemetry`: traces and what may be logged."""

from typing import Annotated

from pydantic import Field

from paceline_core.objects.fields import ApiModel


class Tracing(ApiModel):
    """OpenTelemetry traces."""

    sample_ratio: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    """Share of requests traced that arrive without a trace of their own. Default: 0.

    Workers send to the collector that OTEL_EXPORTER_OTLP_ENDPOINT in runtime.env names, gateways to the one that the
    install names; who has none traces nothing.
    """


class Telemetry(ApiModel):
    """What is recorded about requests."""

    tracing: Tracing = Tracing()
    """OpenTelemetry traces; a request with a sampled traceparent is always traced."""
    log_prompts: bool = False
    """Write prompts and answers to the log. They may hold personal data. Default: false."""

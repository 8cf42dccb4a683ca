"""What spans say of the process that they are from. Imported by who traces alone: it needs OpenTelemetry."""

from collections.abc import Mapping

from opentelemetry.sdk.resources import Resource


def resource(own: Mapping[str, str]) -> Resource:
    """Our own attributes, and what OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES say; where both do, theirs hold."""
    ours, named = Resource(own), Resource.create()  # what OTEL_* says, over defaults
    unnamed = str(named.attributes.get("service.name", "")).startswith("unknown_service")
    return named.merge(ours) if unnamed else ours.merge(named)

"""The code that all parts of paceline share: objects, registry, wire messages, launch, the Cluster seam, telemetry."""

__version__ = "0.1.0"

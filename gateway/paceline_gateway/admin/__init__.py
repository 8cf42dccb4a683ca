"""The admin port: health and metrics, the demand stream, what this gateway sees and counts, its drain and its log."""

AUDIENCE = "paceline/gateway"
"""Whom a hop token for this port must be for."""

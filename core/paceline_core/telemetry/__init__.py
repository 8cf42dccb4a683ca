"""A process's telemetry: metrics from the registry, structured logs."""

from paceline_core.telemetry.instruments import Counter, Exemplar, Histogram
from paceline_core.telemetry.logs import BackgroundWriter, FaultLog, configure, get_logger, log_level, set_level
from paceline_core.telemetry.metrics import Aliases, Metrics

__all__ = [
    "Aliases",
    "BackgroundWriter",
    "Counter",
    "Exemplar",
    "FaultLog",
    "Histogram",
    "Metrics",
    "configure",
    "get_logger",
    "log_level",
    "set_level",
]

"""What a process says about itself: metrics from the registry, structured logs."""

from paceline_core.telemetry.aliases import Aliases
from paceline_core.telemetry.complaints import FaultLog
from paceline_core.telemetry.counter import Counter
from paceline_core.telemetry.histogram import Exemplar, Histogram
from paceline_core.telemetry.logs import configure, get_logger, log_level, set_level
from paceline_core.telemetry.metrics import Metrics
from paceline_core.telemetry.outlet import BackgroundWriter

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

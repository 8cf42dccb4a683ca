"""What a process says about itself: metrics from the registry, structured logs."""

from paceline_core.telemetry.aliases import Aliases
from paceline_core.telemetry.complaints import Complaints
from paceline_core.telemetry.counter import Counter
from paceline_core.telemetry.histogram import Exemplar, Histogram
from paceline_core.telemetry.logs import configure, get_logger, log_level, set_level
from paceline_core.telemetry.metrics import Metrics
from paceline_core.telemetry.outlet import Outlet

__all__ = [
    "Aliases",
    "Complaints",
    "Counter",
    "Exemplar",
    "Histogram",
    "Metrics",
    "Outlet",
    "configure",
    "get_logger",
    "log_level",
    "set_level",
]

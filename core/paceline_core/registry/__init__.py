"""Names shared by all components: metrics, labels, bucket ladders and closed enums."""

from paceline_core.registry.enums import Outcome, Phase, RequestClass, Verdict
from paceline_core.registry.metrics import METRICS, Kind, Metric

__all__ = ["METRICS", "Kind", "Metric", "Outcome", "Phase", "RequestClass", "Verdict"]

"""Boards, recording rules and alerts, generated from the metric registry: `python -m tools.dashboards`."""

from tools.dashboards.alerts import all_alerts
from tools.dashboards.artefacts import artefacts, boards, rule_files
from tools.dashboards.panels import Board, Panel, PanelQuery, queries

__all__ = ["Board", "Panel", "PanelQuery", "all_alerts", "artefacts", "boards", "queries", "rule_files"]

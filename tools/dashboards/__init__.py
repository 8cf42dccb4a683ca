"""Boards, recording rules and alerts, generated from the metric registry: `python -m tools.dashboards`."""

from tools.dashboards.alerts import all_alerts
from tools.dashboards.files import boards, generated_files, rule_files
from tools.dashboards.panels import Board, Panel, PanelQuery, queries

__all__ = ["Board", "Panel", "PanelQuery", "all_alerts", "boards", "generated_files", "queries", "rule_files"]

"""Every generated file with its text: boards and rules, and the chart's copies of both."""

from tools.dashboards import alerts, control_board, recording, service_board, tenant_board
from tools.dashboards.panels import Board
from tools.dashboards.render import render
from tools.dashboards.rules import rule_file

CHART = "charts/paceline/files"


def boards() -> list[Board]:
    """All boards."""
    return [service_board.board(), control_board.board(), tenant_board.board()]


def rule_files() -> dict[str, str]:
    """Name -> text: what is recorded, and what is alerted on."""
    return {
        "paceline-slo.yaml": rule_file(recording.groups()),
        "paceline-alerts.yaml": rule_file(alerts.groups()),
    }


def generated_files() -> dict[str, str]:
    """Path below the repository's root -> text."""
    shown = {f"{board.uid}.json": render(board) for board in boards()}
    rules = rule_files()
    return {
        **{f"dashboards/{name}": text for name, text in shown.items()},
        **{f"dashboards/rules/{name}": text for name, text in rules.items()},
        **{f"{CHART}/dashboards/{name}": text for name, text in shown.items()},
        **{f"{CHART}/rules/{name}": text for name, text in rules.items()},
    }

"""Nouns of a board: panels of queries, in rows, with nothing of Grafana in them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from tools.dashboards.promql import ANY, Match, labels_of
from tools.dashboards.rules import runbook_url

_NAME = re.compile(r"\bpaceline[_:][a-z0-9_:]+")
VARIABLES = {"pisvc_namespace": "$namespace", "pisvc": "$service", "class": "$class"}
TRAFFIC = "No traffic"


class View(StrEnum):
    """How a panel shows its queries."""

    LINES = "lines"
    STACK = "stack"
    STAT = "stat"
    TABLE = "table"
    HEATMAP = "heatmap"


@dataclass(frozen=True, slots=True)
class Query:
    """One expression. `quiet`: a healthy system may have no such series."""

    expr: str
    legend: str = ""
    quiet: bool = False


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel. `meaning`: what is shown; `reading`: what high and low say; `steps`: colours, from a value on."""

    title: str
    meaning: str
    reading: str
    unit: str
    queries: tuple[Query, ...]
    runbook: str = ""
    view: View = View.LINES
    width: int = 8
    height: int = 8
    empty: str = TRAFFIC
    steps: tuple[tuple[float, str], ...] = ()

    @property
    def description(self) -> str:
        """What Grafana shows behind the `i`."""
        names = ", ".join(f"`{name}`" for name in metrics_in(self.queries))
        page = f" Runbook: [{self.runbook}]({runbook_url(self.runbook)})." if self.runbook else ""
        return f"{self.meaning} {self.reading} From {names}.{page}"


tile = partial(Panel, view=View.STAT, width=4, height=4)
"""A small panel of one or two numbers; six fill a line."""


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under one heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Annotation:
    """Marks on every panel's time axis, one for each sample of `expr`."""

    name: str
    expr: str
    title: str
    colour: str


@dataclass(frozen=True, slots=True)
class Board:
    """A dashboard. `variables` are those of `VARIABLES` that a reader may choose."""

    uid: str
    title: str
    description: str
    variables: tuple[str, ...]
    rows: tuple[Row, ...]
    annotations: tuple[Annotation, ...] = ()

    @property
    def panels(self) -> list[Panel]:
        """All panels, from the top."""
        return [panel for row in self.rows for panel in row.panels]


@dataclass(frozen=True, slots=True)
class PanelQuery:
    """A query as Prometheus can be asked it. `quiet`: a healthy system may answer nothing."""

    panel: str
    expr: str
    quiet: bool


def here(name: str, extra: Match = ANY) -> Match:
    """What narrows a series to the reader's choice, as far as it has the labels."""
    chosen = {label: f"~{variable}" for label, variable in VARIABLES.items() if label in labels_of(name)}
    return {**chosen, **extra}


def metrics_in(queries: Sequence[Query]) -> list[str]:
    """The series that queries name, each once, in order."""
    return list(dict.fromkeys(name for query in queries for name in _NAME.findall(query.expr)))


def queries(
    board: Board, namespace: str = ".*", service: str = ".*", request_class: str = ".*", interval: str = "1m"
) -> list[PanelQuery]:
    """Every panel's queries with the variables filled in: `interval` stands for Grafana's rate interval."""
    values = {"$namespace": namespace, "$service": service, "$class": request_class, "$__rate_interval": interval}
    return [
        PanelQuery(panel.title, _filled(query.expr, values), query.quiet)
        for panel in board.panels
        for query in panel.queries
    ]


def _filled(expr: str, values: dict[str, str]) -> str:
    for variable, value in values.items():
        expr = expr.replace(variable, value)
    return expr

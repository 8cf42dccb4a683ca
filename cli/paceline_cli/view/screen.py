"""The live screen of `paceline up`, made of rich's parts from rows; it draws nothing by itself."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from paceline_cli.view.rows import Promise, StatusRow
from paceline_core.units import duration

EVENTS = 4
TROUBLES = {"down": "bold red", "starting": "yellow"}


def screen(rows: Sequence[StatusRow], run: Mapping[str, Any]) -> RenderableType:
    """The whole screen: header, one panel a service, the last events."""
    return Group(_header(run), *(_service(row) for row in rows), *_events(run["events"]))


def _header(run: Mapping[str, Any]) -> Text:
    text = Text.assemble(
        ("paceline ", "bold"), run["endpoint"], f"  up {duration(int(run['uptime_s']))}", f"  metrics: {run['source']}"
    )
    for state, style in TROUBLES.items():
        if names := [name for name, now in run["parts"].items() if now == state]:
            text.append(f"  {state}: {', '.join(names)}", style=style)
    return text


def _service(row: StatusRow) -> Panel:
    title = Text.assemble((row.name, "bold"), f" {row.model}", " (emulated)" if row.emulated else "")
    body: list[RenderableType] = [_replicas(row)]
    if row.promises:
        body.append(_promises(row.promises))
    if row.decision:
        body.append(Text.assemble((f"{row.reason}: ", "cyan"), row.decision))
    body += [Text(trouble, style="red") for trouble in row.troubles]
    return Panel(Group(*body), title=title, title_align="left", border_style="dim")


def _replicas(row: StatusRow) -> Text:
    style = "green" if row.ready >= row.desired else "yellow"
    cost = f"  ${row.cost}/h" if row.cost else ""
    return Text.assemble(("●" * row.ready, "green"), ("○" * row.starting, "yellow"), " ", (row.replicas, style), cost)


def _promises(promises: Sequence[Promise]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("promise")
    for name in ("observed", "promised", "burn rate"):
        table.add_column(name, justify="right")
    for promise in promises:
        burn = "-" if promise.burn is None else f"{promise.burn:.1f}"
        style = "red" if promise.broken else ""
        table.add_row(promise.name, promise.observed or "-", promise.target, burn, style=style)
    return table


def _events(events: Sequence[Mapping[str, Any]]) -> list[Text]:
    return [
        Text(f"{event['time'][11:19]} {event['reason']}: {event['message']}", style="dim", overflow="ellipsis")
        for event in events[-EVENTS:]
    ]

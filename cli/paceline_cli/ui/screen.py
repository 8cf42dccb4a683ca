"""How `paceline up` and `status` show services: rich's live screen, a table as kubectl prints one, and plain lines.

Plain lines are for terminals that cannot redraw, files and pipes: a line is written when something changed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from paceline_cli.ui.rows import Promise, StatusRow
from paceline_core.units import duration

EVENTS = 4
STATE_STYLES = {"down": "bold red", "starting": "yellow"}


def screen(rows: Sequence[StatusRow], run: Mapping[str, Any]) -> RenderableType:
    return Group(_header(run), *(_service(row) for row in rows), *_events(run["events"]))


def _header(run: Mapping[str, Any]) -> Text:
    text = Text.assemble(
        ("paceline ", "bold"), run["endpoint"], f"  up {duration(int(run['uptime_s']))}", f"  metrics: {run['source']}"
    )
    for state, style in STATE_STYLES.items():
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
    body += [Text(problem, style="red") for problem in row.problems]
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


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The header's line and one for each row; an empty cell shows nothing."""
    lines = [header, *rows]
    widths = [max(len(line[index]) for line in lines) for index in range(len(header))]
    for line in lines:
        yield "   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


_BURN_RATE = (
    "burn rate: share of the last minute's requests that missed a promise, over the share that may miss it; "
    "above 1 the error budget will not last its window"
)


def line(row: StatusRow) -> str:
    """`default/chat  2/3 ready, 1 starting  ttft p95 412ms of 500ms  demand: 3 replicas ...`."""
    promises = [promise_text(promise) for promise in row.promises]
    decision = f"{row.reason}: {row.decision}" if row.decision else ""
    emulated = "emulated" if row.emulated else ""
    parts = [row.name, row.replicas, emulated, *promises, decision, *row.problems]
    return "  ".join(part for part in parts if part)


def promise_text(promise: Promise) -> str:
    """`interactive ttft p95 412ms of 500ms, burn rate 0.4`."""
    burn = f", burn rate {promise.burn:.1f}" if promise.burn is not None else ""
    return f"{promise.name} {promise.observed or 'no data'} of {promise.target}{burn}"


def legend(rows: Iterable[StatusRow]) -> str:
    """What the numbers are that need words; empty where none is shown."""
    return _BURN_RATE if any(promise.burn is not None for row in rows for promise in row.promises) else ""


def changed(rows: Iterable[StatusRow], before: dict[str, tuple[object, ...]]) -> list[StatusRow]:
    """The rows that are news, and `before` brought up to date; a latency that moves within its promise is none."""
    news = [row for row in rows if before.get(row.name) != _essence(row)]
    before.update({row.name: _essence(row) for row in news})
    return news


def ends(events: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [event for event in events if event["reason"] == "BackOff"]


def _essence(row: StatusRow) -> tuple[object, ...]:
    broken = tuple(promise.name for promise in row.promises if promise.broken)
    return (row.replicas, row.decision, row.problems, broken)

"""Outputs of `paceline top`: a screen that is redrawn, tables one after another, or JSON for programs.

Tables have the columns of a frame, and mark the rows that need attention.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from paceline_cli.ui.frame import ClassRow, Frame, TenantRow, Time, Use, WorkerRow
from paceline_cli.ui.rows import table
from paceline_core.units import brief, counted

Write = Callable[[str], None]
COLUMNS: Final = 80
"""Narrower terminals cut the tables."""


@dataclass(frozen=True, slots=True)
class Row:
    """A line; `bad` marks it for attention."""

    cells: tuple[str, ...]
    bad: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    header: tuple[str, ...]
    rows: tuple[Row, ...]
    more: int = 0


class TopOutput(Protocol):
    def show(self, frame: Frame) -> None: ...

    def close(self) -> None: ...


class PlainTopOutput:
    def __init__(self, write: Write = typer.echo) -> None:
        self._write = write
        self._between = ""

    def show(self, frame: Frame) -> None:
        self._write(self._between + "\n".join(lines(frame)))
        self._between = "\n"

    def close(self) -> None:
        """Nothing to release."""


class JsonTopOutput:
    """JSON documents: one a line, or indented when `alone`."""

    def __init__(self, *, alone: bool, write: Write = typer.echo) -> None:
        self._indent = 1 if alone else None
        self._write = write

    def show(self, frame: Frame) -> None:
        self._write(json.dumps(frame.document(), indent=self._indent))

    def close(self) -> None:
        """Nothing to release."""


class ScreenTopOutput:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, vertical_overflow="crop")

    def show(self, frame: Frame) -> None:
        if not self._live.is_started:
            self._live.start()
        parts, columns = [drawn(frame)], self._console.width
        if columns < COLUMNS:
            parts.insert(0, Text(f"{columns} columns cut the tables; make it {COLUMNS} or more", style="yellow"))
        self._live.update(Group(*parts), refresh=True)

    def close(self) -> None:
        self._live.stop()


def lines(frame: Frame) -> Iterator[str]:
    yield from (row.cells[0] for row in head(frame))
    for section in sections(frame):
        yield ""
        marked = [(f"! {row.cells[0]}" if row.bad else row.cells[0], *row.cells[1:]) for row in section.rows]
        yield from table(section.header, marked)
        if section.more:
            yield f"and {section.more} more"


def drawn(frame: Frame) -> RenderableType:
    parts: list[RenderableType] = [Text(row.cells[0], style="red" if row.bad else "bold") for row in head(frame)]
    for section in sections(frame):
        made = Table(*section.header, box=None, header_style="dim", padding=(0, 2, 0, 0))
        for row in section.rows:
            made.add_row(*map(Text, row.cells), style="red" if row.bad else "")
        if section.more:
            made.add_row(Text(f"and {section.more} more"), style="dim")
        parts += [Text(), made]
    return Group(*parts)


def top_output(*, as_json: bool, once: bool, terminal: bool) -> TopOutput:
    """JSON if requested, a screen on a terminal for more than one frame, else tables."""
    if as_json:
        return JsonTopOutput(alone=once)
    return ScreenTopOutput(Console()) if terminal and not once else PlainTopOutput()


MOST: Final = 40
"""The most rows of one table; JSON has all."""
NEAR_LIMIT: Final = 0.9
"""The used share of a limit from which on it needs attention."""
NONE: Final = "-"


def sections(frame: Frame) -> Iterator[Section]:
    """Services, then tenants and workers, if there are any."""
    header: tuple[str, ...] = ("SERVICE", "CLASS", "REQ/S", "TOK/S", "RUN", "QUEUE", "HELD", "ELDEST", "TTFT", "TPOT")
    tables = [(header, [_class(row) for row in frame.classes])]
    if frame.tenants:
        header = ("TENANT", "OPEN", "QUEUE", "REQ/MIN", "IN/MIN", "OUT/MIN", "AT ONCE", "MONTH TOKENS", "MONTH $")
        tables.append((header, [_tenant(row) for row in frame.tenants]))
    if frame.workers:
        header = ("SERVICE", "WORKER", "STATE", "SLOTS", "QUEUED TOK", "KV", "CIRCUIT", "PICK/S", "HEARD")
        tables.append((header, [_worker(row) for row in frame.workers]))
    for header, rows in tables:
        yield Section(header, tuple(rows[:MOST]), max(len(rows) - MOST, 0))


def head(frame: Frame) -> Iterator[Row]:
    """The polled gateways, the time of the rates, and the gateways that did not answer."""
    asked = f"{counted(len(frame.gateways), 'gateway')}: {', '.join(frame.gateways)}" if frame.gateways else ""
    yield Row((f"{asked or 'no gateway answers'}; over the last {brief(round(frame.window_s, 1))}",), not asked)
    for silent in frame.silent:
        yield Row((f"{silent.gateway} does not answer: {silent.reason}",), bad=True)
    if frame.truncated:
        yield Row(("there is more than is asked for; narrow it with --service",))


def _class(row: ClassRow) -> Row:
    cells = (
        row.service,
        row.name,
        f"{row.requests:.1f}",
        f"{row.tokens:.0f}",
        str(row.in_flight),
        str(row.queued),
        str(row.held),
        brief(round(row.oldest_wait_s, 1)) if row.queued else NONE,
        _time(row.ttft),
        _time(row.tpot),
    )
    return Row(cells, bad=row.ttft.broken or row.tpot.broken or row.held > 0)


def _time(time: Time) -> str:
    """`p95 412ms/500ms`: observed of promised."""
    observed = NONE if time.observed is None else brief(time.observed)
    promised = "" if time.promised is None else f"/{brief(time.promised)}"
    return f"p{round(time.quantile * 100)} {observed}{promised}"


def _tenant(row: TenantRow) -> Row:
    uses = (row.requests, row.input_tokens, row.output_tokens, row.concurrency)
    dollars = f"{row.month_dollars.used or 0:.2f}"
    if row.month_dollars.limit is not None:
        dollars += f"/{row.month_dollars.limit:g}"
    cells = (row.tenant, str(row.open), str(row.queued), *map(_use, uses), _use(row.month_tokens, bare=True), dollars)
    return Row(cells, bad=row.tightest >= NEAR_LIMIT)


def _use(use: Use, *, bare: bool = False) -> str:
    """`12/60`; nothing without a limit, unless the number alone is useful."""
    if use.limit is None:
        return short(use.used) if bare and use.used is not None else NONE
    return f"{'?' if use.used is None else short(use.used)}/{short(use.limit)}"


def short(number: float) -> str:
    """`950`, `12k`, `3.4M`."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= 10 * size or (number >= size and unit != "k"):
            return f"{number / size:.1f}".removesuffix(".0") + unit
    return f"{number:.0f}"


def _worker(row: WorkerRow) -> Row:
    cells = (
        row.service,
        row.worker,
        row.state,
        f"{row.in_flight}/{NONE if row.slots is None else row.slots}",
        short(row.backlog_tokens),
        f"{row.kv:.0%}",
        row.circuit,
        f"{row.picks:.1f}",
        NONE if row.heard_s_ago is None else brief(round(row.heard_s_ago, 1)),
    )
    return Row(cells, bad=row.state not in {"ready", "starting", "draining"} or row.circuit != "closed")

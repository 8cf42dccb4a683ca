"""Where frames of `paceline top` go: a screen that is redrawn, tables one after another, or JSON for programs."""

import json
from collections.abc import Callable, Iterator
from typing import Final, Protocol

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from paceline_cli.ui.screen import table
from paceline_cli.ui.tables import Row, Section, head, sections
from paceline_cli.ui.top_rows import Frame

Write = Callable[[str], None]
COLUMNS: Final = 80
"""Narrower terminals cut the tables."""


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
        self._live.update(Group(*_narrow(self._console.width), drawn(frame)), refresh=True)

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


def _narrow(columns: int) -> Iterator[RenderableType]:
    if columns < COLUMNS:
        yield Text(f"{columns} columns cut the tables; make it {COLUMNS} or more", style="yellow")


def drawn(frame: Frame) -> RenderableType:
    parts: list[RenderableType] = [Text(row.cells[0], style=_style(row, "bold")) for row in head(frame)]
    for section in sections(frame):
        parts += [Text(), _table(section)]
    return Group(*parts)


def _table(section: Section) -> Table:
    made = Table(*section.header, box=None, header_style="dim", padding=(0, 2, 0, 0))
    for cells in section.rows:
        made.add_row(*map(Text, cells.cells), style=_style(cells, ""))
    if section.more:
        made.add_row(Text(f"and {section.more} more"), style="dim")
    return made


def _style(row: Row, usual: str) -> str:
    return "red" if row.bad else usual


def top_output(*, as_json: bool, once: bool, terminal: bool) -> TopOutput:
    """JSON where it is asked for, a screen on a terminal that shows more than one, else tables."""
    if as_json:
        return JsonTopOutput(alone=once)
    return ScreenTopOutput(Console()) if terminal and not once else PlainTopOutput()

"""Where `paceline up` speaks to: a live screen on a terminal, lines elsewhere, JSON for programs.

Where a frame goes: a screen that is redrawn, tables one after another, or JSON for programs.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.live import Live as RichLive
from rich.table import Table
from rich.text import Text

from paceline_cli.ui.rows import row
from paceline_cli.ui.screen import changed, ends, line, screen, table
from paceline_cli.ui.tables import Row, Section, head, sections
from paceline_cli.ui.top_rows import Frame
from paceline_cli.up.check import ChatAnswer, ChatTarget

Write = Callable[[str], None]
COLUMNS: Final = 80
"""In fewer, tables lose what they say."""


class TopOutput(Protocol):
    """Shows frames until it is closed."""

    def show(self, frame: Frame) -> None:
        """The next one."""
        ...

    def close(self) -> None:
        """There is no next one."""
        ...


class PlainTopOutput:
    """Tables as kubectl prints them, an empty line between."""

    def __init__(self, write: Write = typer.echo) -> None:
        self._write = write
        self._between = ""

    def show(self, frame: Frame) -> None:
        """All tables."""
        self._write(self._between + "\n".join(lines(frame)))
        self._between = "\n"

    def close(self) -> None:
        """Nothing is left to do."""


class JsonTopOutput:
    """One document: over many lines if there is to be one alone, else each on a line of its own."""

    def __init__(self, *, alone: bool, write: Write = typer.echo) -> None:
        self._indent = 1 if alone else None
        self._write = write

    def show(self, frame: Frame) -> None:
        """The frame as it is, without what tables leave out."""
        self._write(json.dumps(frame.document(), indent=self._indent))

    def close(self) -> None:
        """Nothing is left to do."""


class ScreenTopOutput:
    """One screen that is redrawn; the last one stays."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, vertical_overflow="crop")

    def show(self, frame: Frame) -> None:
        """Draw it anew."""
        if not self._live.is_started:
            self._live.start()
        self._live.update(Group(*_narrow(self._console.width), drawn(frame)), refresh=True)

    def close(self) -> None:
        """Leave the terminal as it was."""
        self._live.stop()


def lines(frame: Frame) -> Iterator[str]:
    """Everything as text; `!` stands before what needs attention."""
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
    """Everything in rich's parts."""
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


def chosen(*, as_json: bool, once: bool, terminal: bool) -> TopOutput:
    """JSON where it is asked for, a screen on a terminal that shows more than one, else tables."""
    if as_json:
        return JsonTopOutput(alone=once)
    return ScreenTopOutput(Console()) if terminal and not once else PlainTopOutput()


Run = Mapping[str, Any]


class UpOutput(Protocol):
    """The story of one run, told as it happens."""

    def starting(self, run: Run, notes: Sequence[str]) -> None:
        """Processes are being started."""
        ...

    def ready(self, target: ChatTarget) -> None:
        """Everything is up; this is how to use it."""
        ...

    def update(self, run: Run) -> None:
        """How it is now; called about twice a second."""
        ...

    def checked(self, target: ChatTarget, answer: ChatAnswer) -> None:
        """The check's answer, and which model gave it."""
        ...

    def stopping(self) -> None:
        """An orderly stop has begun."""
        ...

    def stopped(self, logs: Path) -> None:
        """Nothing is left but the logs."""
        ...


class PlainUpOutput:
    """Lines, when something changed."""

    def __init__(self, write: Callable[[str], None] = typer.echo) -> None:
        self._write = write
        self._seen: dict[str, tuple[object, ...]] = {}
        self._printed: Sequence[Run] = ()

    def starting(self, run: Run, notes: Sequence[str]) -> None:
        """One line a service and a note."""
        for note in notes:
            self._write(f"note: {note}")
        names = ", ".join(row(document).name for document in run["services"])
        self._write(f"starting {names}; metrics: {_source(run)}")

    def ready(self, target: ChatTarget) -> None:
        """Endpoint, key and a curl to paste."""
        self._write(f"\nready  endpoint {target.base_url}  key {target.key}  model {target.model}\n\n{curl(target)}\n")

    def update(self, run: Run) -> None:
        """The processes that ended, the services that changed."""
        for event in ends(run["events"]):
            if event not in self._printed:
                self._write(event["message"])
        self._printed = run["events"]
        for news in changed([row(document) for document in run["services"]], self._seen):
            self._write(line(news))

    def checked(self, target: ChatTarget, answer: ChatAnswer) -> None:
        """What was measured."""
        self._write(f"answer  {answer.text.strip()!r}")
        self._write(f"check   {target.model}: {_speed(answer)}")

    def stopping(self) -> None:
        """One line."""
        self._write("stopping: streams are finished first; Ctrl-C again ends everything now")

    def stopped(self, logs: Path) -> None:
        """One line."""
        self._write(f"stopped; its logs stay in {logs} until the next start")


class LiveUpOutput(PlainUpOutput):
    """The same beginning and end, and between them one screen that is redrawn."""

    def __init__(self, console: Console) -> None:
        super().__init__(lambda text: console.print(text, markup=False, highlight=False, soft_wrap=True))
        self._live = RichLive(console=console, auto_refresh=False)

    def update(self, run: Run) -> None:
        """Redraw."""
        if not self._live.is_started:
            self._live.start()
        rows = [row(document) for document in run["services"]]
        self._live.update(screen(rows, run), refresh=True)

    def stopping(self) -> None:
        """Leave the last screen standing."""
        self._live.stop()
        super().stopping()


class JsonUpOutput:
    """One object a line; `update` writes a line when something changed."""

    def __init__(self, write: Callable[[str], None] = typer.echo) -> None:
        self._write = write
        self._last: Run = {}

    def starting(self, run: Run, notes: Sequence[str]) -> None:
        """`{"event": "starting"}`."""
        self._say("starting", source=run["source"], notes=list(notes))

    def ready(self, target: ChatTarget) -> None:
        """`{"event": "ready", "endpoint": ..., "key": ..., "model": ...}`."""
        self._say("ready", endpoint=target.base_url, key=target.key, model=target.model)

    def update(self, run: Run) -> None:
        """`{"event": "status", "services": [...]}`."""
        news = {name: value for name, value in run.items() if name != "uptime_s"}
        if news != self._last:
            self._last = news
            self._say("status", **run)

    def checked(self, target: ChatTarget, answer: ChatAnswer) -> None:
        """`{"event": "checked", "model": ..., "ttft_ms": ...}`."""
        self._say(
            "checked",
            model=target.model,
            ttft_ms=round(answer.ttft_s * 1000, 1),
            tokens=answer.tokens,
            tokens_per_s=round(answer.tokens_per_s, 1),
            text=answer.text,
        )

    def stopping(self) -> None:
        """`{"event": "stopping"}`."""
        self._say("stopping")

    def stopped(self, logs: Path) -> None:
        """`{"event": "stopped", "logs": ...}`."""
        self._say("stopped", logs=str(logs))

    def _say(self, event: str, **fields: Any) -> None:
        self._write(json.dumps({"event": event, **fields}))


def choose(*, as_json: bool, terminal: bool) -> UpOutput:
    """The output that fits."""
    if as_json:
        return JsonUpOutput()
    return LiveUpOutput(Console()) if terminal else PlainUpOutput()


def curl(target: ChatTarget) -> str:
    """A command to paste into a shell."""
    return (
        f"curl -N {target.base_url}/chat/completions \\\n"
        f"  -H 'Authorization: Bearer {target.key}' -H 'Content-Type: application/json' \\\n"
        f"  -d '{json.dumps(target.body)}'"
    )


def _speed(answer: ChatAnswer) -> str:
    return (
        f"ttft {answer.ttft_s * 1000:.0f} ms, {answer.tokens} tokens, {answer.tokens_per_s:.1f} tokens/s, "
        f"{answer.total_s:.2f} s in all"
    )


def _source(run: Run) -> str:
    if run["source"] == "prometheus":
        return "the prometheus found on PATH"
    return "the autoscaler's embedded source, since there is no prometheus on PATH"

"""Outputs of `paceline up`: a live screen on a terminal, lines elsewhere, JSON for programs.

Lines are for terminals that cannot redraw, files and pipes: a line is written when something has changed.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from paceline_cli.ui.rows import StatusRow, line, row
from paceline_cli.up.check import ChatAnswer, ChatTarget
from paceline_core.units import duration

Run = Mapping[str, Any]


class PlainUpOutput:
    """Reports a run as it proceeds, in lines: `update` comes about twice a second, `stopped` when only logs remain."""

    def __init__(self, write: Callable[[str], None] = typer.echo) -> None:
        self._write = write
        self._last_states: dict[str, tuple[object, ...]] = {}
        self._printed: Sequence[Run] = ()

    def starting(self, run: Run, notes: Sequence[str]) -> None:
        for note in notes:
            self._write(f"note: {note}")
        names = ", ".join(row(document).name for document in run["services"])
        source = "the autoscaler's embedded source, since there is no prometheus on PATH"
        if run["source"] == "prometheus":
            source = "the prometheus found on PATH"
        self._write(f"starting {names}; metrics: {source}")

    def ready(self, target: ChatTarget) -> None:
        self._write(f"\nready  endpoint {target.base_url}  key {target.key}  model {target.model}\n\n{curl(target)}\n")

    def update(self, run: Run) -> None:
        for event in run["events"]:
            if event["reason"] == "BackOff" and event not in self._printed:
                self._write(event["message"])
        self._printed = run["events"]
        for news in changed([row(document) for document in run["services"]], self._last_states):
            self._write(line(news))

    def checked(self, target: ChatTarget, answer: ChatAnswer) -> None:
        self._write(f"answer  {answer.text.strip()!r}")
        self._write(
            f"check   {target.model}: ttft {answer.ttft_s * 1000:.0f} ms, {answer.tokens} tokens, "
            f"{answer.tokens_per_s:.1f} tokens/s, {answer.total_s:.2f} s in all"
        )

    def stopping(self) -> None:
        self._write("stopping: streams are finished first; Ctrl-C ends everything now")

    def stopped(self, logs: Path) -> None:
        self._write(f"stopped; its logs stay in {logs} until the next start")


class LiveUpOutput(PlainUpOutput):
    """As plain output, but `update` redraws one screen."""

    def __init__(self, console: Console) -> None:
        super().__init__(lambda text: console.print(text, markup=False, highlight=False, soft_wrap=True))
        self._live = Live(console=console, auto_refresh=False)

    def update(self, run: Run) -> None:
        if not self._live.is_started:
            self._live.start()
        rows = [row(document) for document in run["services"]]
        self._live.update(screen(rows, run), refresh=True)

    def stopping(self) -> None:
        self._live.stop()
        super().stopping()


class JsonUpOutput:
    """Writes one object a line; `update` writes a line when something has changed."""

    def __init__(self, write: Callable[[str], None] = typer.echo) -> None:
        self._write = write
        self._last: Run = {}

    def starting(self, run: Run, notes: Sequence[str]) -> None:
        self._write_event("starting", source=run["source"], notes=list(notes))

    def ready(self, target: ChatTarget) -> None:
        self._write_event("ready", endpoint=target.base_url, key=target.key, model=target.model)

    def update(self, run: Run) -> None:
        news = {name: value for name, value in run.items() if name != "uptime_s"}
        if news != self._last:
            self._last = news
            self._write_event("status", **run)

    def checked(self, target: ChatTarget, answer: ChatAnswer) -> None:
        self._write_event(
            "checked",
            model=target.model,
            ttft_ms=round(answer.ttft_s * 1000, 1),
            tokens=answer.tokens,
            tokens_per_s=round(answer.tokens_per_s, 1),
            text=answer.text,
        )

    def stopping(self) -> None:
        self._write_event("stopping")

    def stopped(self, logs: Path) -> None:
        self._write_event("stopped", logs=str(logs))

    def _write_event(self, event: str, **fields: Any) -> None:
        self._write(json.dumps({"event": event, **fields}))


UpOutput = PlainUpOutput | JsonUpOutput


def up_output(*, as_json: bool, terminal: bool) -> UpOutput:
    if as_json:
        return JsonUpOutput()
    return LiveUpOutput(Console()) if terminal else PlainUpOutput()


def curl(target: ChatTarget) -> str:
    """A curl command to paste into a shell."""
    return (
        f"curl -N {target.base_url}/chat/completions \\\n"
        f"  -H 'Authorization: Bearer {target.key}' -H 'Content-Type: application/json' \\\n"
        f"  -d '{json.dumps(target.body)}'"
    )


def changed(rows: Iterable[StatusRow], before: dict[str, tuple[object, ...]]) -> list[StatusRow]:
    """The changed rows; updates `before`. A latency that changes within its promise does not count."""
    news = []
    for each in rows:
        broken = tuple(promise.name for promise in each.promises if promise.broken)
        essence = (each.replicas, each.decision, each.problems, broken)
        if before.get(each.name) != essence:
            news.append(each)
        before[each.name] = essence
    return news


EVENTS = 4
STATE_STYLES = {"down": "bold red", "starting": "yellow"}


def screen(rows: Sequence[StatusRow], run: Mapping[str, Any]) -> RenderableType:
    header = Text.assemble(
        ("paceline ", "bold"), run["endpoint"], f"  up {duration(int(run['uptime_s']))}", f"  metrics: {run['source']}"
    )
    for state, style in STATE_STYLES.items():
        if names := [name for name, now in run["parts"].items() if now == state]:
            header.append(f"  {state}: {', '.join(names)}", style=style)
    events = [
        Text(f"{event['time'][11:19]} {event['reason']}: {event['message']}", style="dim", overflow="ellipsis")
        for event in run["events"][-EVENTS:]
    ]
    return Group(header, *(_panel(row) for row in rows), *events)


def _panel(row: StatusRow) -> Panel:
    title = Text.assemble((row.name, "bold"), f" {row.model}", " (emulated)" if row.emulated else "")
    ready, starting = ("●" * row.ready, "green"), ("○" * row.starting, "yellow")
    style, cost = "green" if row.ready >= row.desired else "yellow", f"  ${row.cost}/h" if row.cost else ""
    body: list[RenderableType] = [Text.assemble(ready, starting, " ", (row.replicas, style), cost)]
    if row.promises:
        table = Table(box=None, pad_edge=False, header_style="dim")
        table.add_column("promise")
        for name in ("observed", "promised", "burn rate"):
            table.add_column(name, justify="right")
        for promise in row.promises:
            burn = "-" if promise.burn is None else f"{promise.burn:.1f}"
            style = "red" if promise.broken else ""
            table.add_row(promise.name, promise.observed or "-", promise.target, burn, style=style)
        body.append(table)
    if row.decision:
        body.append(Text.assemble((f"{row.reason}: ", "cyan"), row.decision))
    body += [Text(problem, style="red") for problem in row.problems]
    return Panel(Group(*body), title=title, title_align="left", border_style="dim")

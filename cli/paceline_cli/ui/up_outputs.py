"""Where `paceline up` reports its run: a live screen on a terminal, lines elsewhere, JSON for programs."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import typer
from rich.console import Console
from rich.live import Live

from paceline_cli.ui.rows import row
from paceline_cli.ui.screen import changed, ends, line, screen
from paceline_cli.up.check import ChatAnswer, ChatTarget

Run = Mapping[str, Any]


class UpOutput(Protocol):
    """Reports one run as it proceeds."""

    def starting(self, run: Run, notes: Sequence[str]) -> None: ...

    def ready(self, target: ChatTarget) -> None:
        """Everything is up; `target` says how to use it."""
        ...

    def update(self, run: Run) -> None:
        """The current state; called about twice a second."""
        ...

    def checked(self, target: ChatTarget, answer: ChatAnswer) -> None:
        """The check's answer and the model that gave it."""
        ...

    def stopping(self) -> None: ...

    def stopped(self, logs: Path) -> None:
        """Every process has ended; only the logs remain."""
        ...


class PlainUpOutput:
    """Lines, written when something changed."""

    def __init__(self, write: Callable[[str], None] = typer.echo) -> None:
        self._write = write
        self._last_states: dict[str, tuple[object, ...]] = {}
        self._printed: Sequence[Run] = ()

    def starting(self, run: Run, notes: Sequence[str]) -> None:
        for note in notes:
            self._write(f"note: {note}")
        names = ", ".join(row(document).name for document in run["services"])
        self._write(f"starting {names}; metrics: {_source(run)}")

    def ready(self, target: ChatTarget) -> None:
        self._write(f"\nready  endpoint {target.base_url}  key {target.key}  model {target.model}\n\n{curl(target)}\n")

    def update(self, run: Run) -> None:
        for event in ends(run["events"]):
            if event not in self._printed:
                self._write(event["message"])
        self._printed = run["events"]
        for news in changed([row(document) for document in run["services"]], self._last_states):
            self._write(line(news))

    def checked(self, target: ChatTarget, answer: ChatAnswer) -> None:
        self._write(f"answer  {answer.text.strip()!r}")
        self._write(f"check   {target.model}: {_speed(answer)}")

    def stopping(self) -> None:
        self._write("stopping: streams are finished first; Ctrl-C again ends everything now")

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
    """One object a line; `update` writes a line when something changed."""

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


def up_output(*, as_json: bool, terminal: bool) -> UpOutput:
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

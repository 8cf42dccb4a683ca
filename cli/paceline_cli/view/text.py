"""Plain lines: for terminals that cannot redraw, files and pipes. A line is written when something changed."""

from collections.abc import Iterable, Mapping
from typing import Any

from paceline_cli.view.rows import Promise, StatusRow

_BURN_RATE = (
    "burn rate: share of the last minute's requests that missed a promise, over the share that may miss it; "
    "above 1 the error budget will not last its window"
)


def line(row: StatusRow) -> str:
    """`default/chat  2/3 ready, 1 starting  ttft p95 412ms of 500ms  demand: 3 replicas ...`."""
    promises = [promise_text(promise) for promise in row.promises]
    decision = f"{row.reason}: {row.decision}" if row.decision else ""
    emulated = "emulated" if row.emulated else ""
    parts = [row.name, row.replicas, emulated, *promises, decision, *row.troubles]
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
    """Processes that ended by themselves."""
    return [event for event in events if event["reason"] == "BackOff"]


def _essence(row: StatusRow) -> tuple[object, ...]:
    broken = tuple(promise.name for promise in row.promises if promise.broken)
    return (row.replicas, row.decision, row.troubles, broken)

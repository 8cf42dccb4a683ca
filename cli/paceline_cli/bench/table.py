"""A report for people: one table of phases, one line each for replicas, decisions, host and verdict. Pure."""

from collections.abc import Iterator
from itertools import groupby
from math import isfinite

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from paceline_cli.bench.openloop import Ending
from paceline_cli.bench.report import Report, Summary

_COLORS = {"kept": "green", "missed": "red", "void": "yellow"}
DECISIONS_SHOWN = 20
_BEFORE = ("phase", "s", "offered", "lost")
_AFTER = ("ttft ms\np50/p95/p99", "tpot ms\np95", "e2e s\np95", "tokens\n/s")


def render(report: Report) -> RenderableType:
    table = Table(title=f"{report.model} at {report.endpoint}: {report.profile.name}, seed {report.seed}")
    promised = [f"{part.target}\n≤ {part.threshold * 1000:.0f} ms" for part in report.overall.promise]
    for name in (*_BEFORE, *promised, *_AFTER):
        table.add_column(name, justify="left" if name == "phase" else "right", no_wrap=True)
    for summary in (*report.phases, report.overall):
        table.add_row(*_row(summary))
    reasons = f" ({'; '.join(report.void_because)})" if report.void_because else ""
    verdict = f"verdict: {report.verdict}{reasons}; {report.cut_streams} streams cut"
    return Group(table, *(Text(line) for line in _lines(report)), Text(verdict, style=_COLORS[report.verdict]))


def _row(summary: Summary) -> Iterator[str]:
    ok = summary.endings.get(Ending.OK, 0)
    yield from (summary.name, f"{summary.duration:.0f}", str(summary.offered), str(summary.offered - ok))
    for part in summary.promise:
        yield "-" if part.ratio is None else f"{part.ratio:.1%} {'≥' if part.met else '<'} {part.objective:.0%}"
    ttft = [time for time in (summary.ttft.p50, summary.ttft.p95, summary.ttft.p99) if time is not None]
    yield "/".join(f"{time * 1000:.0f}" for time in ttft) or "-"
    yield "-" if summary.tpot.p95 is None else f"{summary.tpot.p95 * 1000:.0f}"
    yield "-" if summary.e2e.p95 is None else f"{summary.e2e.p95:.2f}"
    yield f"{summary.output_tokens_per_s:.0f}"


def _lines(report: Report) -> Iterator[str]:
    yield "latencies are of requests that ended ok, shares of all that were offered"
    yield "endings: " + ", ".join(f"{name} {count}" for name, count in sorted(report.overall.endings.items()))
    yield from (f"lost: {loss.count} {loss.ending}, {loss.detail}" for loss in report.losses)
    if report.recovery_s is not None:
        yield f"recovery: {report.recovery_s:.0f} s after the burst began"
    if report.observation.replicas:
        steps = groupby(report.observation.replicas, key=lambda each: each.ready)
        changes = [f"{max(next(group).at, 0.0):.0f}s:{ready}" for ready, group in steps]
        yield f"replicas: {' '.join(changes)}"
    if (taken := report.observation.decisions) is not None:
        decisions = [row for row in taken.rows if row.direction != "hold"]
        yield from (f"decision: {row.at:.0f}s {row.reason}: {row.sentence}" for row in decisions[:DECISIONS_SHOWN])
        yield f"ledger: {len(taken.rows)} entries replayed, {taken.different} came out differently"
    if (host := report.observation.host) is not None:
        yield f"host: {host.cores} cores, CPU {host.mean:.0%} on average, {host.peak:.0%} at most"
    emulation = report.observation.emulation
    if emulation is not None and emulation.p99_at_most is not None:
        late = f"≤ {emulation.p99_at_most:.0%} of a step" if isfinite(emulation.p99_at_most) else "over all buckets"
        yield f"emulated steps: {emulation.steps}, lateness p99 {late}"

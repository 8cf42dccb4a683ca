"""A report for people: one table of phases, one line each for replicas, decisions, host and verdict. Pure."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from paceline_cli.bench.observation import Decisions
from paceline_cli.bench.openloop import Ending
from paceline_cli.bench.report import ClassAttainment, Report, Spread, Summary

_COLORS = {"kept": "green", "missed": "red", "void": "yellow"}
DECISIONS_SHOWN = 20
_BEFORE = ("phase", "s", "offered", "lost")
_AFTER = ("ttft ms\np50/p95/p99", "tpot ms\np95", "e2e s\np95", "tokens\n/s")


def render(report: Report) -> RenderableType:
    return Group(_phases(report), *(Text(line) for line in _lines(report)), _verdict(report))


def _phases(report: Report) -> Table:
    table = Table(title=f"{report.model} at {report.endpoint}: {report.profile.name}, seed {report.seed}")
    promised = [f"{part.target}\n≤ {part.threshold * 1000:.0f} ms" for part in report.overall.promise]
    for name in (*_BEFORE, *promised, *_AFTER):
        table.add_column(name, justify="left" if name == "phase" else "right", no_wrap=True)
    for summary in (*report.phases, report.overall):
        table.add_row(*_row(summary))
    return table


def _row(summary: Summary) -> Iterator[str]:
    ok = summary.endings.get(Ending.OK, 0)
    yield from (summary.name, f"{summary.duration:.0f}", str(summary.offered), str(summary.offered - ok))
    yield from (_attained(part) for part in summary.promise)
    yield _milliseconds(summary.ttft)
    yield "-" if summary.tpot.p95 is None else f"{summary.tpot.p95 * 1000:.0f}"
    yield "-" if summary.e2e.p95 is None else f"{summary.e2e.p95:.2f}"
    yield f"{summary.output_tokens_per_s:.0f}"


def _attained(part: ClassAttainment) -> str:
    return "-" if part.ratio is None else f"{part.ratio:.1%} {'≥' if part.met else '<'} {part.objective:.0%}"


def _milliseconds(times: Spread) -> str:
    if times.p50 is None or times.p95 is None or times.p99 is None:
        return "-"
    return f"{times.p50 * 1000:.0f}/{times.p95 * 1000:.0f}/{times.p99 * 1000:.0f}"


def _lines(report: Report) -> Iterator[str]:
    yield "latencies are of requests that ended ok, shares of all that were offered"
    yield "endings: " + ", ".join(f"{name} {count}" for name, count in sorted(report.overall.endings.items()))
    yield from (f"lost: {loss.count} {loss.ending}, {loss.detail}" for loss in report.losses)
    if report.recovery_s is not None:
        yield f"recovery: {report.recovery_s:.0f} s after the burst began"
    if report.observation.replicas:
        yield "replicas: " + " ".join(_steps([(r.at, r.ready) for r in report.observation.replicas]))
    if report.observation.decisions is not None:
        yield from _decisions(report.observation.decisions)
    yield from _machine(report)


def _decisions(taken: Decisions) -> Iterator[str]:
    changes = [row for row in taken.rows if row.direction != "hold"]
    yield from (f"decision: {row.at:.0f}s {row.reason}: {row.sentence}" for row in changes[:DECISIONS_SHOWN])
    yield f"ledger: {len(taken.rows)} entries replayed, {taken.different} came out differently"


def _machine(report: Report) -> Iterator[str]:
    host, emulation = report.observation.host, report.observation.emulation
    if host is not None:
        yield f"host: {host.cores} cores, CPU {host.mean:.0%} on average, {host.peak:.0%} at most"
    if emulation is not None and emulation.p99_at_most is not None:
        yield f"emulated steps: {emulation.steps}, lateness p99 ≤ {emulation.p99_at_most:.0%} of a step"


def _steps(points: Sequence[tuple[float, int]]) -> Iterator[str]:
    """`0s:1 23s:2`: when the number became what."""
    for number, group in groupby(points, key=lambda point: point[1]):
        yield f"{max(next(group)[0], 0.0):.0f}s:{number}"


def _verdict(report: Report) -> Text:
    reasons = f" ({'; '.join(report.void_because)})" if report.void_because else ""
    cut = f"; {report.cut_streams} streams cut"
    return Text(f"verdict: {report.verdict}{reasons}{cut}", style=_COLORS[report.verdict])

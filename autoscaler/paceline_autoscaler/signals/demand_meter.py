"""What gateways count, as demand: cumulative counters in, rates over windows out. Pure; `now` is an argument.

A rise between two reports is spread evenly over the time between them, so rates do not jitter with the reports, and a
report that comes late is counted where it belongs. A gateway seen for the first time only sets the base line (what it
counted before is not recent); one whose counters restart (`started` differs, or a count fell) counted all of it now.
Hole: what a gateway counted between its last report and its death is lost.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from math import floor

from paceline_autoscaler.types import ClassSignals, Demand, RateWindow
from paceline_core.registry.enums import RequestClass
from paceline_core.wire import ClassDemand as Row
from paceline_core.wire import DemandReport

WINDOWS_S = (5, 15, 60)
SILENCE_S = 4.0
_ENOUGH_COMPLETED = 8

Counts = tuple[float, float, float, float]
Kind = tuple[str, RequestClass]
_ZERO: Counts = (0.0, 0.0, 0.0, 0.0)


@dataclass(slots=True)
class _Gateway:
    at: float
    started: str
    totals: Mapping[Kind, Counts]
    rows: Mapping[Kind, tuple[Row, ...]]


@dataclass(slots=True)
class DemandMeter:
    """Demand per service and class over all gateways, from whatever lines of their streams arrived."""

    _gateways: dict[str, _Gateway] = field(default_factory=dict)
    _bins: dict[Kind, dict[int, Counts]] = field(default_factory=dict)
    _since: float | None = None

    def on(self, report: DemandReport, now: float) -> None:
        if self._since is None:
            self._since = now
        rows = {(service.service, cls): rows for service in report.services for cls, rows in _by_class(service.classes)}
        totals = {kind: _add(*map(_counts, rows)) for kind, rows in rows.items()}
        before = self._gateways.get(report.gateway)
        if before is not None:
            base = before.totals if before.started == report.started else {}
            for kind, counts in totals.items():
                self._spread(kind, before.at, now, _rise(base.get(kind, _ZERO), counts))
        self._gateways[report.gateway] = _Gateway(now, report.started, totals, rows)
        self._prune(now)

    def of(self, service: str, now: float, expected: int, heard: int) -> Demand:
        """A service's demand; `heard` of the `expected` gateways are not silent."""
        classes = (self._class((service, cls), now) for cls in RequestClass)
        return Demand(expected, heard, tuple(found for found in classes if found is not None))

    def _class(self, kind: Kind, now: float) -> ClassSignals | None:
        rows = [row for g in self._gateways.values() if now - g.at <= SILENCE_S for row in g.rows.get(kind, ())]
        if not rows and kind not in self._bins:
            return None
        deadlines = [row.nearest_deadline_s for row in rows if row.nearest_deadline_s is not None]
        return ClassSignals(
            name=kind[1],
            flows=tuple(self._flow(kind, now, window) for window in WINDOWS_S),
            output_tokens=self._output_tokens(kind, now),
            queued=sum(row.queued for row in rows),
            queued_tokens=sum(row.queued_prompt_tokens for row in rows),
            held=sum(row.held for row in rows),
            in_flight=sum(row.in_flight for row in rows),
            deadline_s=min(deadlines, default=None),
        )

    def _flow(self, kind: Kind, now: float, window: int) -> RateWindow:
        arrivals, prompt_tokens, _, _ = self._sum(kind, now, window)
        return RateWindow(min(window, max(now - (self._since or now), 1.0)), arrivals, prompt_tokens)

    def _output_tokens(self, kind: Kind, now: float) -> float | None:
        *_, output, completed = self._sum(kind, now, WINDOWS_S[-1])
        if completed < _ENOUGH_COMPLETED:
            *_, output, completed = _add(*(gateway.totals.get(kind, _ZERO) for gateway in self._gateways.values()))
        return output / completed if completed >= 1 else None

    def _sum(self, kind: Kind, now: float, window: int) -> Counts:
        bins, end = self._bins.get(kind, {}), floor(now)
        return _add(*(bins[index] for index in range(end - window, end) if index in bins))

    def _spread(self, kind: Kind, start: float, end: float, counts: Counts) -> None:
        if counts == _ZERO:
            return
        start = max(min(start, end - 0.001), end - WINDOWS_S[-1])
        bins = self._bins.setdefault(kind, {})
        for index in range(floor(start), floor(end) + 1):
            share = (min(index + 1, end) - max(index, start)) / (end - start)
            bins[index] = _add(bins.get(index, _ZERO), _scale(counts, share))

    def _prune(self, now: float) -> None:
        oldest = floor(now) - WINDOWS_S[-1]
        for kind, bins in list(self._bins.items()):
            for index in [index for index in bins if index < oldest]:
                del bins[index]
            if not bins:
                del self._bins[kind]
        for name in [name for name, gateway in self._gateways.items() if gateway.at < oldest]:
            del self._gateways[name]


def _by_class(rows: Iterable[Row]) -> list[tuple[RequestClass, tuple[Row, ...]]]:
    ordered = sorted(rows, key=lambda row: row.name)
    return [(cls, tuple(found)) for cls, found in groupby(ordered, key=lambda row: row.name)]


def _counts(row: Row) -> Counts:
    return (row.arrivals, row.prompt_tokens, row.output_tokens, row.completed)


def _rise(old: Counts, new: Counts) -> Counts:
    fell = any(after < before for before, after in zip(old, new, strict=True))
    return new if fell else _add(new, _scale(old, -1.0))


def _scale(counts: Counts, factor: float) -> Counts:
    a, b, c, d = counts
    return (a * factor, b * factor, c * factor, d * factor)


def _add(*many: Counts) -> Counts:
    a, b, c, d = (sum(column) for column in zip(*many, strict=True)) if many else _ZERO
    return (a, b, c, d)

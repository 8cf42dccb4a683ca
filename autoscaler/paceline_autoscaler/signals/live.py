"""Live signals from streams: demand from gateways, load from workers.

A DNS name means all of its addresses of one family (IPv4 if there are any, so that a dual-stack gateway does not count
twice). A name that does not resolve keeps its last addresses: a failed resolver does not mean lost gateways. A silent
gateway makes demand incomplete. The endpoints watch lists workers; their streams report their load.

Gateways report cumulative counters; the meter turns them into rates over windows. A rise between two reports is spread
evenly over the time between them, so rates do not jitter with the reports, and a late report counts where it belongs. A
gateway seen for the first time only sets the baseline (its earlier counts are not recent); for one whose counters
restarted (`started` differs, or a count fell), all of the count is new.
Hole: what a gateway counts between its last report and its death is lost.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import floor
from operator import attrgetter
from typing import NamedTuple

from paceline_autoscaler.output.worker_events import IsolationEvents
from paceline_autoscaler.signals.length_meter import LengthMeter
from paceline_autoscaler.types import (
    DEMAND_WINDOWS_S,
    ClassSignals,
    CompletedRequests,
    Demand,
    Now,
    RateWindow,
    WorkerLoad,
)
from paceline_core.auth.internal_token import GATEWAY_AUDIENCE
from paceline_core.kube import ServiceEndpoints
from paceline_core.registry.enums import RequestClass
from paceline_core.telemetry import FaultLog, get_logger
from paceline_core.wire import ClassDemand, DemandReport, LoadReport, WorkerState
from paceline_core.wire.stream import ReportStreams, StreamClient, StreamSource, check_service, worker_source

SILENCE_S = 4.0
_ENOUGH_COMPLETED = 8
RESOLVE_S = 2.0
LOAD_SILENCE_S = 12.0
_RESOLVE_LIMIT_S = 3.0
_log = get_logger(__name__)

Resolve = Callable[[str, int], Awaitable[tuple[str, ...]]]
OnLoad = Callable[[str, str, LoadReport], None]
Kind = tuple[str, RequestClass]


class _Counts(NamedTuple):
    """The cumulative fields of `ClassDemand`, summed or of a span."""

    arrivals: float = 0.0
    prompt_tokens: float = 0.0
    completed: float = 0.0
    completed_prompt_tokens: float = 0.0
    cached_tokens: float = 0.0
    output_tokens: float = 0.0
    attended_pairs: float = 0.0
    kv_reads: float = 0.0


_counts = attrgetter(*_Counts._fields)
_ZERO = _Counts()


async def resolve(host: str, port: int) -> tuple[str, ...]:
    """Addresses of a host, only IPv4 if it has any. Raises OSError."""
    loop = asyncio.get_running_loop()
    infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    ipv4 = {str(info[4][0]) for info in infos if info[0] is socket.AF_INET}
    return tuple(sorted(ipv4 or {str(info[4][0]) for info in infos}))


class GatewayDemand:
    """Demand over all gateways. Calls `on_urgent` when a report shows held requests or a new isolated request."""

    def __init__(
        self,
        addresses: Iterable[str],
        client: StreamClient,
        now: Now,
        on_urgent: Callable[[], None],
        resolver: Resolve = resolve,
    ) -> None:
        self._resolved: dict[str, tuple[str, ...]] = dict.fromkeys(addresses, ())
        self._streams = ReportStreams(DemandReport, client, self._on_report)
        self._clock = client.clock
        self._now = now
        self._on_urgent = on_urgent
        self._resolve = resolver
        self._meter = DemandMeter()
        self.isolations = IsolationEvents()
        self.lengths = LengthMeter()
        self._faults = FaultLog(_log)

    @property
    def hosts(self) -> tuple[str, ...]:
        """`address:port` of every gateway."""
        return tuple(dict.fromkeys(host for hosts in self._resolved.values() for host in hosts))

    @property
    def reporting(self) -> int:
        return len(self._streams.fresh(SILENCE_S))

    def demand(self, service: str) -> Demand:
        unresolved = sum(not hosts for hosts in self._resolved.values())
        return self._meter.of(service, self._now(), len(self.hosts) + unresolved, self.reporting)

    def age_s(self) -> float | None:
        """Age of the oldest last report of any gateway; None while a gateway has not reported yet."""
        received = {source.name: last.at for source, last in self._streams.received.items()}
        if not self.hosts or any(host not in received for host in self.hosts):
            return None
        return self._clock.monotonic() - min(received[host] for host in self.hosts)

    async def run(self) -> None:
        while True:
            await self.find()
            await self._clock.sleep(RESOLVE_S)

    async def find(self) -> None:
        for address in self._resolved:
            host, _, port = address.rpartition(":")
            try:
                async with asyncio.timeout(_RESOLVE_LIMIT_S):
                    found = await self._resolve(host.strip("[]"), int(port))
            except (OSError, TimeoutError) as error:
                self._faults.begin(f"no gateway is found at {address}", repr(error))
                continue
            self._faults.end(f"no gateway is found at {address}")
            self._resolved[address] = tuple(f"[{ip}]:{port}" if ":" in ip else f"{ip}:{port}" for ip in found)
        self._streams.follow(
            StreamSource(host, f"http://{host}/internal/demand", GATEWAY_AUDIENCE) for host in self.hosts
        )

    async def close(self) -> None:
        await self._streams.close()

    def _on_report(self, _: StreamSource, report: DemandReport) -> None:
        self._meter.on(report, self._now())
        self.lengths.on(report, self._now())
        isolated = self.isolations.on(report, self._clock.utc())
        if isolated or any(cls.held for service in report.services for cls in service.classes):
            self._on_urgent()


@dataclass(slots=True)
class _Gateway:
    at: float
    started: str
    totals: Mapping[Kind, _Counts]
    rows: Mapping[Kind, tuple[ClassDemand, ...]]


@dataclass(slots=True)
class DemandMeter:
    """Demand for each service and class over all gateways, from the lines that their streams have brought."""

    _gateways: dict[str, _Gateway] = field(default_factory=dict)
    _bins: dict[Kind, dict[int, _Counts]] = field(default_factory=dict)
    _since: float | None = None

    def on(self, report: DemandReport, now: float) -> None:
        if self._since is None:
            self._since = now
        rows: dict[Kind, tuple[ClassDemand, ...]] = {}
        for service in report.services:
            for row in service.classes:
                kind = (service.service, row.name)
                rows[kind] = (*rows.get(kind, ()), row)
        totals = {kind: _add(*map(_counts, found)) for kind, found in rows.items()}
        before = self._gateways.get(report.gateway)
        if before is not None:
            base = before.totals if before.started == report.started else {}
            for kind, counts in totals.items():
                old = base.get(kind, _ZERO)
                fell = any(after < earlier for earlier, after in zip(old, counts, strict=True))
                self._spread(kind, before.at, now, counts if fell else _add(counts, _scale(old, -1.0)))
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
        flows = []
        for window in DEMAND_WINDOWS_S:
            bins, end = self._bins.get(kind, {}), floor(now)
            counts = _add(*(bins[index] for index in range(end - window, end) if index in bins))
            seconds = min(window, max(now - (self._since or now), 1.0))
            flows.append(RateWindow(seconds, counts.arrivals, counts.prompt_tokens))
        lengths = counts
        if counts.completed < _ENOUGH_COMPLETED:
            lengths = _add(*(gateway.totals.get(kind, _ZERO) for gateway in self._gateways.values()))
        deadlines = [row.nearest_deadline_s for row in rows if row.nearest_deadline_s is not None]
        return ClassSignals(
            name=kind[1],
            flows=tuple(flows),
            output_tokens=lengths.output_tokens / lengths.completed if lengths.completed >= 1 else None,
            queued=sum(row.queued for row in rows),
            queued_tokens=sum(row.queued_prompt_tokens for row in rows),
            overdue_tokens=sum(row.overdue_prompt_tokens for row in rows),
            held=sum(row.held for row in rows),
            in_flight=sum(row.in_flight for row in rows),
            oldest_s=max((row.oldest_wait_s for row in rows), default=0.0),
            deadline_s=min(deadlines, default=None),
            completed=_completed(counts),
        )

    def _spread(self, kind: Kind, start: float, end: float, counts: _Counts) -> None:
        if counts == _ZERO:
            return
        start = max(min(start, end - 0.001), end - DEMAND_WINDOWS_S[-1])
        bins = self._bins.setdefault(kind, {})
        for index in range(floor(start), floor(end) + 1):
            share = (min(index + 1, end) - max(index, start)) / (end - start)
            bins[index] = _add(bins.get(index, _ZERO), _scale(counts, share))

    def _prune(self, now: float) -> None:
        oldest = floor(now) - DEMAND_WINDOWS_S[-1]
        for kind, bins in list(self._bins.items()):
            for index in [index for index in bins if index < oldest]:
                del bins[index]
            if not bins:
                del self._bins[kind]
        for name in [name for name, gateway in self._gateways.items() if gateway.at < oldest]:
            del self._gateways[name]


def _completed(counts: _Counts) -> CompletedRequests | None:
    """The requests of a window, None without token counts of their prompts."""
    if counts.completed_prompt_tokens <= 0:
        return None
    return CompletedRequests(
        requests=counts.completed,
        prompt_tokens=counts.completed_prompt_tokens,
        cached_tokens=counts.cached_tokens,
        output_tokens=counts.output_tokens,
        attended_pairs=counts.attended_pairs,
        kv_reads=counts.kv_reads,
    )


def _scale(counts: _Counts, factor: float) -> _Counts:
    return _Counts(*[count * factor for count in counts])


def _add(*many: Iterable[float]) -> _Counts:
    return _Counts(*[sum(column) for column in zip(*many, strict=True)]) if many else _ZERO


class WorkerLoads:
    """Load reports of every worker of every service; `on_load` gets each one, with the service and the worker.

    Both names come from the list of workers, never from the report: a worker reports only for itself.
    """

    def __init__(self, client: StreamClient, on_load: OnLoad = lambda _service, _worker, _report: None) -> None:
        self._streams = ReportStreams(LoadReport, client, self._on_report)
        self._on_load = on_load

    def follow(self, services: Iterable[ServiceEndpoints]) -> None:
        """Follow exactly these workers; one without an address waits."""
        self._streams.follow(
            worker_source(str(item.service), e.name, e.host, e.port)
            for item in services
            for e in item.endpoints
            if e.host
        )

    def reports(self, service: str) -> dict[str, LoadReport]:
        """The last reports by worker, without silent workers."""
        fresh = self._streams.fresh(LOAD_SILENCE_S).items()
        return {source.name: report for source, report in fresh if source.audience == service}

    def loads(self, service: str) -> dict[str, WorkerLoad]:
        """Loads by worker, for ready and retired workers that reported recently."""
        return loads_of(self.reports(service))

    def _on_report(self, source: StreamSource, report: LoadReport) -> None:
        check_service(source, report)
        self._on_load(source.audience, source.name, report)

    async def close(self) -> None:
        await self._streams.close()


def loads_of(reports: Mapping[str, LoadReport]) -> dict[str, WorkerLoad]:
    """The loads that reports by worker have."""
    found = {name: load_of(name, report) for name, report in reports.items()}
    return {name: load for name, load in found.items() if load is not None}


def load_of(worker: str, report: LoadReport) -> WorkerLoad | None:
    """The part of a report that policies read; None if the worker cannot serve.

    `worker` is its name in the list of workers: in a cluster a worker does not know its own.
    """
    serves = report.state is WorkerState.READY or report.retired
    if not serves or report.kv.total <= 0:
        return None
    return WorkerLoad(
        worker=worker,
        slots=report.slots,
        running=report.running,
        waiting=sum(report.waiting.values()),
        queued_tokens=sum(report.queued_tokens.values()),
        kv_tokens=report.kv.total * report.kv.page_tokens,
        kv_used=max(1 - (report.kv.free + report.kv.cached) / report.kv.total, 0.0),
        step_time=report.step_time,
        by_class=tuple(
            (cls, count, report.queued_tokens.get(cls, 0)) for cls, count in report.waiting.items() if count
        ),
    )

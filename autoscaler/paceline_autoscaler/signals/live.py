"""The gateways: found by address, heard by their demand streams. One that is silent makes the picture partial.

A DNS name stands for all addresses of one family behind it (IPv4 if there is any, so that a gateway with two is not
counted twice). A name that cannot be resolved keeps the addresses it had: losing the resolver is not losing gateways.

The workers: who they are from the endpoints watch, how they are from their own load streams.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable

from paceline_autoscaler.output.worker_events import IsolationEvents
from paceline_autoscaler.signals.demand_meter import SILENCE_S, DemandMeter
from paceline_autoscaler.types import Demand, Now, WorkerLoad
from paceline_core.auth.internal_token import GATEWAY_AUDIENCE
from paceline_core.errors import InvalidInput
from paceline_core.kube import Endpoint, ServiceEndpoints
from paceline_core.telemetry import FaultLog, get_logger
from paceline_core.wire import DemandReport, LoadReport, WorkerState
from paceline_core.wire.stream import ReportStreams, StreamClient, StreamSource

RESOLVE_S = 2.0
_RESOLVE_LIMIT_S = 3.0
_log = get_logger(__name__)

Resolve = Callable[[str, int], Awaitable[tuple[str, ...]]]


async def resolve(host: str, port: int) -> tuple[str, ...]:
    """Addresses of a host, IPv4 alone where there is one. Raises OSError."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    four = {str(info[4][0]) for info in found if info[0] is socket.AF_INET}
    return tuple(sorted(four or {str(info[4][0]) for info in found}))


class GatewayDemand:
    """Demand over all gateways. `on_held` is called when a report shows held requests, or one that is isolated."""

    def __init__(
        self,
        addresses: Iterable[str],
        link: StreamClient,
        now: Now,
        on_held: Callable[[], None],
        resolver: Resolve = resolve,
    ) -> None:
        self._found: dict[str, tuple[str, ...]] = dict.fromkeys(addresses, ())
        self._streams = ReportStreams(DemandReport, link, self._on_report)
        self._clock = link.clock
        self._now = now
        self._on_held = on_held
        self._resolve = resolver
        self._meter = DemandMeter()
        self.isolations = IsolationEvents()
        self._complaints = FaultLog(_log)

    @property
    def hosts(self) -> tuple[str, ...]:
        """`address:port` of every gateway."""
        return tuple(dict.fromkeys(host for hosts in self._found.values() for host in hosts))

    @property
    def heard(self) -> int:
        """Gateways that are not silent."""
        return len(self._streams.fresh(SILENCE_S))

    def demand(self, service: str) -> Demand:
        """A service's demand now."""
        unfound = sum(not hosts for hosts in self._found.values())
        return self._meter.of(service, self._now(), len(self.hosts) + unfound, self.heard)

    def age_s(self) -> float | None:
        """Age of the oldest gateway's last line; None while one has never been heard."""
        heard = self._streams.heard
        if not self.hosts or any(host not in heard for host in self.hosts):
            return None
        return self._clock.monotonic() - min(heard[host].at for host in self.hosts)

    async def run(self) -> None:
        """Look gateways up again and again, until cancelled."""
        while True:
            await self.find()
            await self._clock.sleep(RESOLVE_S)

    async def find(self) -> None:
        """Look every address up once and follow what is there."""
        for address in self._found:
            host, _, port = address.rpartition(":")
            try:
                async with asyncio.timeout(_RESOLVE_LIMIT_S):
                    found = await self._resolve(host.strip("[]"), int(port))
            except (OSError, TimeoutError) as error:
                self._complaints.begin(f"no gateway is found at {address}", repr(error))
                continue
            self._complaints.end(f"no gateway is found at {address}")
            self._found[address] = tuple(f"{_in_url(ip)}:{port}" for ip in found)
        self._streams.follow(
            StreamSource(host, f"http://{host}/internal/demand", GATEWAY_AUDIENCE) for host in self.hosts
        )

    async def close(self) -> None:
        """Close the streams."""
        await self._streams.close()

    def _on_report(self, _: StreamSource, report: DemandReport) -> None:
        self._meter.on(report, self._now())
        news = self.isolations.on(report, self._clock.utc())
        if news or any(cls.held for service in report.services for cls in service.classes):
            self._on_held()


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


LOAD_SILENCE_S = 12.0
OnLoad = Callable[[str, str, LoadReport], None]


class WorkerLoads:
    """Load reports of every worker of every service; `on_load` gets each line, with the service and the worker.

    Both are those of the list of workers: what a worker calls itself is believed of nobody else.
    """

    def __init__(self, link: StreamClient, on_load: OnLoad = lambda _service, _worker, _report: None) -> None:
        self._streams = ReportStreams(LoadReport, link, self._on_line)
        self._on_load = on_load

    def follow(self, services: Iterable[ServiceEndpoints]) -> None:
        """These are the workers now; who has no address yet cannot be heard."""
        self._streams.follow(_place(str(item.service), e) for item in services for e in item.endpoints if e.host)

    def loads(self, service: str) -> dict[str, WorkerLoad]:
        """Loads by worker, of those that are ready and have said so lately."""
        fresh = self._streams.fresh(LOAD_SILENCE_S).items()
        prefix = f"{service}/"
        found = {name.removeprefix(prefix): load_of(report) for name, report in fresh if name.startswith(prefix)}
        return {name: load for name, load in found.items() if load is not None}

    def _on_line(self, place: StreamSource, report: LoadReport) -> None:
        service = place.audience
        if report.service != service:
            raise InvalidInput("service", f"{report.service!r} answers where {service!r} should be")
        self._on_load(service, place.name.removeprefix(f"{service}/"), report)

    async def close(self) -> None:
        """Close the streams."""
        await self._streams.close()


def load_of(report: LoadReport) -> WorkerLoad | None:
    """What policies read of a report; None from a worker that is not ready or does not know its speed yet."""
    step = report.step_time
    if report.state is not WorkerState.READY or report.kv.total <= 0 or step.base + step.prefill <= 0:
        return None
    return WorkerLoad(
        worker=report.worker,
        slots=report.slots,
        running=report.running,
        waiting=sum(report.waiting.values()),
        queued_tokens=sum(report.queued_tokens.values()),
        kv_tokens=report.kv.total * report.kv.page_tokens,
        kv_used=max(1 - (report.kv.free + report.kv.cached) / report.kv.total, 0.0),
        step_time=step,
    )


def _place(service: str, endpoint: Endpoint) -> StreamSource:
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return StreamSource(f"{service}/{endpoint.name}", f"http://{host}:{endpoint.port}/internal/load", service)

"""The gateways: found by address, heard by their demand streams. One that is silent makes the picture partial.

A DNS name stands for all addresses of one family behind it (IPv4 if there is any, so that a gateway with two is not
counted twice). A name that cannot be resolved keeps the addresses it had: losing the resolver is not losing gateways.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterable

from paceline_autoscaler.demand import SILENCE_S, DemandMeter
from paceline_autoscaler.isolations import IsolationEvents
from paceline_autoscaler.nouns import Demand
from paceline_autoscaler.now import Now
from paceline_autoscaler.signals.streams import ReportStreams
from paceline_core.auth.internal_token import GATEWAY_AUDIENCE
from paceline_core.telemetry import FaultLog, get_logger
from paceline_core.wire import DemandReport
from paceline_core.wire.stream import StreamClient, StreamSource

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

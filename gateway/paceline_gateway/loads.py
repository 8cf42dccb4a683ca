"""Load streams: one `GET /internal/load` per worker, kept open; every line is handed on, every break too.

A task per worker connects, reads lines, and connects again with growing delay. Lines are bounded, so that a worker
that never ends one cannot fill this process.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import Protocol

import httpx

from paceline_core.auth import HopSigner
from paceline_core.auth.hop import HEADER as HOP_HEADER
from paceline_core.clock import Clock
from paceline_core.errors import InvalidInput
from paceline_core.kube import Endpoint
from paceline_core.telemetry import get_logger
from paceline_core.wire import LoadReport, decode
from paceline_core.wire.message import LINE_LIMIT

DELAYS_S = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
CONNECT_S = 2.0
SILENCE_S = 15.0
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Place:
    """Whose stream, and where it is read."""

    service: str
    worker: str
    host: str
    port: int


class Listener(Protocol):
    """Who hears of the streams, on the event loop."""

    def on_report(self, service: str, worker: str, report: LoadReport) -> None:
        """A worker said how it is."""
        ...

    def on_cut(self, service: str, worker: str) -> None:
        """A worker's stream broke."""
        ...


class Nobody:
    """Hears and does nothing."""

    def on_report(self, service: str, worker: str, report: LoadReport) -> None:
        """Nothing."""

    def on_cut(self, service: str, worker: str) -> None:
        """Nothing."""


class LoadStreams:
    """`listener` is set before the first `follow`: it is the one who asks for it."""

    def __init__(self, signer: HopSigner, clock: Clock) -> None:
        self.listener: Listener = Nobody()
        self._signer = signer
        self._clock = clock
        self._tasks: dict[Place, asyncio.Task[None]] = {}
        self._http = httpx.AsyncClient(
            timeout=httpx.Timeout(CONNECT_S, read=SILENCE_S),
            limits=httpx.Limits(max_connections=None),
            trust_env=False,
            verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),  # hops are plain HTTP: no certificates need to be read
        )

    def follow(self, service: str, endpoints: Iterable[Endpoint]) -> None:
        """These are a service's workers now: open what is missing, close what is gone."""
        wanted = {Place(service, e.name, e.host, e.port) for e in endpoints}
        for place in [p for p in self._tasks if p.service == service and p not in wanted]:
            self._tasks.pop(place).cancel()
        for place in wanted - self._tasks.keys():
            self._tasks[place] = asyncio.create_task(self._keep_reading(place))

    async def close(self) -> None:
        """Close every stream."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._http.aclose()

    async def _keep_reading(self, place: Place) -> None:
        failures = 0
        while True:
            try:
                async for report in self._read(place):
                    failures = 0
                    self.listener.on_report(place.service, place.worker, report)
                reason = "the worker closed the stream"
            except (httpx.HTTPError, InvalidInput) as error:
                reason = str(error) or type(error).__name__
            self.listener.on_cut(place.service, place.worker)
            if failures == 0:
                _log.info("load stream cut", extra={"worker": place.worker, "reason": reason})
            await self._clock.sleep(DELAYS_S[min(failures, len(DELAYS_S) - 1)])
            failures += 1

    async def _read(self, place: Place) -> AsyncIterator[LoadReport]:
        url = f"http://{_in_url(place.host)}:{place.port}/internal/load"
        token = self._signer.token(place.service, self._clock.utc())
        async with self._http.stream("GET", url, headers={HOP_HEADER: token}) as response:
            if response.status_code != httpx.codes.OK:
                raise InvalidInput("", f"the worker answered {response.status_code}")
            async for line in _lines(response):
                report = decode(LoadReport, line)
                if report.service != place.service:
                    raise InvalidInput("service", f"{report.service!r} answers where {place.service!r} should be")
                yield report


async def _lines(response: httpx.Response) -> AsyncIterator[bytes]:
    rest = b""
    async for chunk in response.aiter_bytes():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line.strip():
                yield line
        if len(rest) > LINE_LIMIT:
            raise InvalidInput("", f"a line is over the limit of {LINE_LIMIT} bytes")


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host

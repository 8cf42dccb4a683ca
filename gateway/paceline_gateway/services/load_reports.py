"""The gateway's load streams: `GET /internal/load` of each worker, kept open; the listener gets reports and breaks."""

from collections.abc import Iterable
from typing import Protocol

from paceline_core.auth import Signer
from paceline_core.clock import Clock
from paceline_core.kube import Endpoint
from paceline_core.wire import LoadReport
from paceline_core.wire.stream import (
    ReportStreams,
    StreamClient,
    StreamSource,
    check_service,
    stream_client,
    worker_source,
)

SILENCE_S = 15.0


class Listener(Protocol):
    """Called on the event loop with what the streams bring."""

    def on_report(self, service: str, worker: str, report: LoadReport) -> None:
        """A worker sent a report."""
        ...

    def on_disconnect(self, service: str, worker: str, *, refused: bool) -> None:
        """A worker's stream broke; `refused`: its host is up, and nothing listens."""
        ...


class NullListener:
    """Ignores everything."""

    def on_report(self, service: str, worker: str, report: LoadReport) -> None:
        """Ignore it."""

    def on_disconnect(self, service: str, worker: str, *, refused: bool) -> None:
        """Ignore it."""


class LoadReportStreams:
    """`listener` is set before the first `follow`, which it calls."""

    def __init__(self, signer: Signer, clock: Clock) -> None:
        self.listener: Listener = NullListener()
        self._http = stream_client(SILENCE_S)
        client = StreamClient(self._http, signer, clock)
        self._streams = ReportStreams(LoadReport, client, self._on_report, self._on_disconnect)

    def follow(self, service: str, endpoints: Iterable[Endpoint]) -> None:
        """Follow exactly these workers of a service; one without an address waits."""
        sources = (worker_source(service, e.name, e.host, e.port) for e in endpoints if e.host)
        self._streams.follow(sources, audience=service)

    async def close(self) -> None:
        await self._streams.close()
        await self._http.aclose()

    def _on_report(self, source: StreamSource, report: LoadReport) -> None:
        check_service(source, report)
        self.listener.on_report(source.audience, source.name, report)

    def _on_disconnect(self, source: StreamSource, refused: bool) -> None:
        self.listener.on_disconnect(source.audience, source.name, refused=refused)

"""Load streams: one `GET /internal/load` per worker, kept open; every line is handed on, every break too."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from paceline_core.auth import Signer
from paceline_core.clock import Clock
from paceline_core.errors import InvalidInput
from paceline_core.kube import Endpoint
from paceline_core.process import cancel
from paceline_core.wire import LoadReport
from paceline_core.wire.stream import StreamClient, StreamSource, stream_client, subscribe

SILENCE_S = 15.0


@dataclass(frozen=True, slots=True)
class WorkerRef:
    """Whose stream, and where it is read."""

    service: str
    name: str
    host: str
    port: int

    @property
    def place(self) -> StreamSource:
        """Where its stream is."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return StreamSource(self.name, f"http://{host}:{self.port}/internal/load", self.service)


class Listener(Protocol):
    """Who hears of the streams, on the event loop."""

    def on_report(self, service: str, worker: str, report: LoadReport) -> None:
        """A worker said how it is."""
        ...

    def on_cut(self, service: str, worker: str, *, refused: bool) -> None:
        """A worker's stream broke; `refused`: nobody listens there."""
        ...


class NullListener:
    """Hears and does nothing."""

    def on_report(self, service: str, worker: str, report: LoadReport) -> None:
        """Nothing."""

    def on_cut(self, service: str, worker: str, *, refused: bool) -> None:
        """Nothing."""


class LoadReportStreams:
    """`listener` is set before the first `follow`: it is the one who asks for it."""

    def __init__(self, signer: Signer, clock: Clock) -> None:
        self.listener: Listener = NullListener()
        self._link = StreamClient(stream_client(SILENCE_S), signer, clock)
        self._tasks: dict[WorkerRef, asyncio.Task[None]] = {}

    def follow(self, service: str, endpoints: Iterable[Endpoint]) -> None:
        """These are a service's workers now: open what is missing, close what is gone; who has no address yet waits."""
        wanted = {WorkerRef(service, e.name, e.host, e.port) for e in endpoints if e.host}
        for worker in [w for w in self._tasks if w.service == service and w not in wanted]:
            self._tasks.pop(worker).cancel()
        for worker in wanted - self._tasks.keys():
            self._tasks[worker] = asyncio.create_task(self._read(worker))

    async def close(self) -> None:
        """Close every stream."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        await cancel(*tasks)
        await self._link.http.aclose()

    async def _read(self, worker: WorkerRef) -> None:
        def heard(report: LoadReport) -> None:
            if report.service != worker.service:
                raise InvalidInput("service", f"{report.service!r} answers where {worker.service!r} should be")
            self.listener.on_report(worker.service, worker.name, report)

        def cut(refused: bool) -> None:
            self.listener.on_cut(worker.service, worker.name, refused=refused)

        await subscribe(LoadReport, worker.place, self._link, heard, cut)

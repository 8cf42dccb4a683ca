"""Watches a local stack through the Cluster seam during a run: replicas, step lateness, the machine's CPU.

Lateness is scraped rarely, because a scrape costs time of the measured worker; a draining worker is scraped every
second, so that little of its last steps is lost. A part that does not answer leaves a gap, never an error.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from itertools import count

import httpx
import psutil
from prometheus_client.parser import text_string_to_metric_families

from paceline_cli.bench.observation import BenchObservation, Buckets, LatenessTally, Replicas, host_use
from paceline_core.clock import Clock
from paceline_core.errors import PacelineError, Unreachable
from paceline_core.kube import Cluster, Deleted, Endpoint, Listed, ObjectKey, ScaleTarget, ServiceEndpoints, Upserted
from paceline_core.kube.cluster import WatchEvent
from paceline_core.process import cancel

PERIOD_S = 1.0
SCRAPE_EVERY = 5
SCRAPE_LIMIT_S = 2.0
FIRST_LIMIT_S = 5.0
LATENESS = "paceline_emulated_step_lateness_ratio"

Scrape = Callable[[Endpoint], Awaitable[str]]


class Watch:
    def __init__(self, cluster: Cluster, targets: Iterable[ScaleTarget], clock: Clock, scrape: Scrape) -> None:
        self._cluster = cluster
        self._targets = tuple(targets)
        self._clock = clock
        self._scrape = scrape
        self._workers: dict[ObjectKey, tuple[Endpoint, ...]] = {}
        self._tally = LatenessTally()
        self._replicas: list[Replicas] = []
        self._cpu: list[float] = []
        self._start = 0.0
        self._tasks: tuple[asyncio.Task[None], ...] = ()

    async def begin(self, start: float) -> None:
        """Record the state before the run, which starts at `start` (the clock's monotonic). Raises Unreachable."""
        self._start = start
        events = self._cluster.watch_endpoints()

        async def follow() -> None:
            async for event in events:
                self._take(event)

        try:
            async with asyncio.timeout(FIRST_LIMIT_S):
                self._take(await anext(events))
        except TimeoutError:
            raise Unreachable(f"the stack did not list its workers within {FIRST_LIMIT_S:g} s") from None
        await self._scrape_all(self._mine(), self._tally.base)
        psutil.cpu_percent()
        self._tasks = (asyncio.create_task(follow()), asyncio.create_task(self._poll()))

    async def end(self) -> BenchObservation:
        """Stop watching and sum up; the caller adds decisions."""
        await self._scrape_all(self._mine(), self._tally.last)
        await self.close()
        host = host_use(psutil.cpu_count() or 1, self._cpu)
        return BenchObservation(tuple(self._replicas), emulation=self._tally.emulation(), host=host)

    async def close(self) -> None:
        await cancel(*self._tasks)

    def _take(self, event: WatchEvent[ServiceEndpoints]) -> None:
        match event:
            case Listed(items):
                self._workers = {item.service: item.endpoints for item in items}
            case Upserted(item):
                self._workers[item.service] = item.endpoints
            case Deleted(item):
                self._workers.pop(item.service, None)

    async def _poll(self) -> None:
        for tick in count():
            with suppress(PacelineError):
                desired = sum([(await self._cluster.get_scale(target)).replicas for target in self._targets])
                workers, at = self._mine(), self._clock.monotonic() - self._start
                draining = sum(worker.terminating for worker in workers)
                ready = sum(worker.ready and not worker.terminating for worker in workers)
                starting = len(workers) - ready - draining
                self._replicas.append(Replicas(at, desired, ready, starting, draining))
            due = [worker for worker in self._mine() if worker.terminating or tick % SCRAPE_EVERY == 0]
            await self._scrape_all(due, self._tally.last)
            await self._clock.sleep(max(self._start + (tick + 1) * PERIOD_S - self._clock.monotonic(), 0.0))
            self._cpu.append(psutil.cpu_percent() / 100)

    def _mine(self) -> list[Endpoint]:
        services = {target.service for target in self._targets}
        return [worker for service in services for worker in self._workers.get(service, ())]

    async def _scrape_all(self, workers: Iterable[Endpoint], into: dict[str, Buckets]) -> None:
        for worker in workers:
            if buckets := lateness(await self._scrape(worker)):
                into[worker.name] = buckets


async def scrape(worker: Endpoint) -> str:
    """A worker's `/metrics`; empty if it does not answer."""
    try:
        async with httpx.AsyncClient(timeout=SCRAPE_LIMIT_S) as http:
            return (await http.get(f"http://{worker.host}:{worker.metrics_port}/metrics")).text
    except httpx.HTTPError:
        return ""


def lateness(exposition: str) -> Buckets:
    """Cumulative lateness buckets by upper edge, summed over all series; the rest of the page is not parsed."""
    lines = [line for line in exposition.splitlines() if line.startswith((f"# TYPE {LATENESS}", LATENESS))]
    buckets: dict[float, float] = {}
    for family in text_string_to_metric_families("\n".join(lines) + "\n"):
        for sample in family.samples:
            if sample.name == f"{LATENESS}_bucket":
                edge = float(sample.labels["le"])
                buckets[edge] = buckets.get(edge, 0.0) + sample.value
    return buckets

"""One autoscaler process: its configuration, its parts, its port (health, metrics, decisions), its shutdown.

SIGTERM ends it at once: it has nothing to drain. It stores what it learned and releases the lease, so that the next one
continues where this one stopped. The configuration is not reloaded; only objects and the key change while it runs.
"""

import asyncio
import contextlib
import re
import socket
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import datetime
from math import inf
from pathlib import Path
from typing import Annotated

import httpx
from fastapi import FastAPI, Query, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from pydantic import BeforeValidator, Field

from paceline_autoscaler.controller import Autoscaler, Signals
from paceline_autoscaler.metrics_source.base import MetricsSource
from paceline_autoscaler.metrics_source.prometheus import PrometheusSource
from paceline_autoscaler.metrics_source.scraper import ScrapeSource
from paceline_autoscaler.output.ledger import Ledger, LedgerQuery
from paceline_autoscaler.output.ledger_entry import EntryKind, LedgerEntry, entry_json
from paceline_autoscaler.output.ledger_files import LedgerFiles
from paceline_autoscaler.output.retire_client import RetireClient
from paceline_autoscaler.output.scale_writer import ScaleWriter, stored_texts
from paceline_autoscaler.output.worker_events import EndedWorkers
from paceline_autoscaler.service_scaler import ScalerDeps
from paceline_autoscaler.signals import GatewayDemand, StreamClient, WorkerLoads, stream_client
from paceline_autoscaler.signals.attainment import AttainmentPoller
from paceline_autoscaler.signals.live import LOAD_SILENCE_S
from paceline_autoscaler.signals.past_demand import PastDemand
from paceline_autoscaler.types import unix_clock
from paceline_core.auth import Signer
from paceline_core.clock import Clock
from paceline_core.config import Config, Listen
from paceline_core.kube import Cluster, ObjectKey
from paceline_core.kube.connect import ClusterConfig
from paceline_core.process import admin_server, first
from paceline_core.telemetry import Metrics, get_logger
from paceline_core.units import QUANTITY_PATTERN, quantity

STUCK_S = 60.0
SCRAPE_LIMIT_S = 2.0
MEASURE_S = 5.0
MAX_DECISIONS = 2000
SERVICE_PATTERN = r"^[a-z0-9-]{1,63}/[a-z0-9.-]{1,253}$"
LEDGER_SHARE = 0.9
"""Of the volume: a file system needs some of it itself, and a pod is evicted once its volume is over its limit."""
_log = get_logger(__name__)


class PrometheusConfig(Config):
    """The Prometheus that scrapes the gateways. Times in seconds."""

    url: str = Field(pattern=r"^https?://")
    deadline_s: float = Field(default=2.0, gt=0)
    """The longest wait for one answer."""
    stale_after_s: float = Field(default=30.0, gt=0)
    """An answer whose newest sample is older is stale; three scrape intervals are a good choice."""


class AutoscalerConfig(Config):
    """The autoscaler's configuration file."""

    name: str = Field(default_factory=socket.gethostname, min_length=1)
    """The holder of the lease; unique among autoscalers. Default: the host's name, which in a pod is the pod's."""
    listen: Listen = Listen(port=8090)
    """Metrics, health and decisions."""
    cluster: ClusterConfig = ClusterConfig()
    """The API server: the local supervisor's socket, a kubeconfig, or by default the pod's own cluster."""
    namespace: str = "paceline-system"
    """The lease's namespace."""
    signing_key: Path
    """Private key of this autoscaler's internal tokens: a file of 32 raw bytes, reloaded when it changes."""
    gateways: tuple[str, ...] = Field(min_length=1)
    """Admin addresses `host:port` of the gateways; a DNS name means all of its addresses, resolved repeatedly."""
    prometheus: PrometheusConfig | None = None
    """The source of attainment. None: the autoscaler scrapes the gateways itself."""
    interval_s: float = Field(default=5.0, gt=0, le=10)
    """Between two passes; a held request starts one at once."""
    ledger_dir: Path | None = None
    """Directory of the ledger, which has files for each service. None: only the newest decisions, in memory."""
    ledger_size: str = Field(default="1Gi", pattern=QUANTITY_PATTERN)
    """Size of the directory's volume. The ledger uses nine tenths of it and deletes old decisions to stay below."""


def _moment(value: str) -> datetime | float:
    """A time, or a number of seconds. Raises ValueError."""
    with contextlib.suppress(ValueError):
        if re.fullmatch(r"[0-9]{1,10}(\.[0-9]+)?", value):
            return float(value)
        moment = datetime.fromisoformat(value)
        if moment.tzinfo is not None:
            return moment
    raise ValueError(f"write a time like 2026-01-31T12:00:00Z, or seconds before now like 3600, not {value!r}")


Since = Annotated[datetime | float, BeforeValidator(_moment)]


def make_app(autoscaler: Autoscaler, deps: ScalerDeps) -> FastAPI:
    """`/healthz`: passes continue; `/readyz`: services and workers are known; `/debug/decisions`: newest first;
    `/debug/learned`: what is known of a service, as it is stored.
    """
    app = FastAPI(openapi_url=None)

    @app.get("/healthz")
    async def healthz() -> Response:
        idle = deps.clock.monotonic() - autoscaler.passed_at
        alive = idle < STUCK_S
        return PlainTextResponse("ok" if alive else f"no pass for {idle:.0f} s", 200 if alive else 503)

    @app.get("/readyz")
    async def readyz() -> Response:
        ready = autoscaler.ready
        return PlainTextResponse("ok" if ready else "services and workers are not listed", 200 if ready else 503)

    @app.get("/metrics")
    async def metrics(request: Request) -> Response:
        body, content_type = deps.metrics.exposition(request.headers.get("accept", ""))
        return Response(body, headers={"content-type": content_type})

    @app.get("/debug/decisions")
    async def decisions(
        service: Annotated[str | None, Query(pattern=SERVICE_PATTERN)] = None,
        limit: Annotated[int, Query(ge=1, le=MAX_DECISIONS)] = 50,
        since: Since = inf,
        kind: EntryKind | None = None,
        inputs: bool = True,
    ) -> Response:
        oldest = since.timestamp() if isinstance(since, datetime) else deps.now() - since
        query = LedgerQuery(limit, oldest, kind)
        entries = deps.ledger.newest_of(service, query) if service else deps.ledger.newest(query)
        return StreamingResponse(_array(entries, inputs=inputs), media_type="application/json")

    @app.get("/debug/learned")
    async def learned(service: Annotated[str, Query(pattern=SERVICE_PATTERN)]) -> Response:
        found = autoscaler.learned(ObjectKey.parse(service))
        if found is None:
            return JSONResponse({"error": f"{service} is not scaled here"}, 404)
        spec = autoscaler.cluster_view.specs.get(ObjectKey.parse(service))
        prices = {} if spec is None else {pool.name: pool.dollars_per_hour for pool in spec.pools}
        learned = {"stored": stored_texts(found), "dollars_per_hour": prices}
        return JSONResponse({"service": service, "now": deps.now(), **learned})

    app.add_exception_handler(404, _not_found)
    return app


def _array(entries: Iterator[LedgerEntry], *, inputs: bool) -> Iterator[bytes]:
    """A JSON array, an entry at a time: together they may be larger than what the process has in memory."""
    yield b"["
    for number, entry in enumerate(entries):
        yield (b"," if number else b"") + entry_json(entry, inputs=inputs)
    yield b"]"


async def _not_found(_: Request, __: Exception) -> Response:
    return JSONResponse(
        {"error": "no such route; there are /healthz, /readyz, /metrics, /debug/decisions, /debug/learned"}, 404
    )


@dataclass(frozen=True, slots=True)
class AutoscalerDeps:
    cluster: Cluster
    clock: Clock
    signer: Signer


async def serve(config: AutoscalerConfig, site: AutoscalerDeps, listening: socket.socket, stop: asyncio.Event) -> None:
    async with assembled(config, site) as (autoscaler, deps):
        http = admin_server(make_app(autoscaler, deps))
        _log.info("listening", extra={"address": ":".join(map(str, listening.getsockname()[:2]))})
        try:
            await first(autoscaler.run(), http.serve([listening]), stop.wait())
        finally:
            await autoscaler.close()


@contextlib.asynccontextmanager
async def assembled(config: AutoscalerConfig, site: AutoscalerDeps) -> AsyncIterator[tuple[Autoscaler, ScalerDeps]]:
    metrics, wake = Metrics("autoscaler"), asyncio.Event()
    writer = ScaleWriter(site.cluster, metrics)
    now, timeout = unix_clock(site.clock), httpx.Timeout(SCRAPE_LIMIT_S)
    async with stream_client(LOAD_SILENCE_S) as streams, httpx.AsyncClient(timeout=timeout, trust_env=False) as calls:
        workers = RetireClient(calls, site.signer, site.clock)
        link = StreamClient(streams, site.signer, site.clock)
        gateways = GatewayDemand(config.gateways, link, now, wake.set)
        source = _source(config, calls, gateways, site.clock)
        past = PastDemand(source, site.clock, metrics) if isinstance(source, PrometheusSource) else None
        deps = ScalerDeps(writer, _ledger(config), metrics, site.clock, now, workers, past)
        attainment = AttainmentPoller(source, site.clock, metrics, max(config.interval_s, MEASURE_S))
        ended = EndedWorkers()
        signals = Signals(gateways, WorkerLoads(link, ended.on_load), attainment, wake, ended)
        yield Autoscaler(config.name, site.cluster, signals, deps, config.interval_s), deps


def _ledger(config: AutoscalerConfig) -> Ledger:
    if config.ledger_dir is None:
        return Ledger()
    return Ledger(LedgerFiles(config.ledger_dir, int(LEDGER_SHARE * quantity(config.ledger_size))))


def _source(config: AutoscalerConfig, http: httpx.AsyncClient, gateways: GatewayDemand, clock: Clock) -> MetricsSource:
    prometheus = config.prometheus
    if prometheus is not None:
        _log.info("attainment is read from Prometheus", extra={"url": prometheus.url})
        return PrometheusSource(
            prometheus.url, deadline_s=prometheus.deadline_s, stale_after_s=prometheus.stale_after_s
        )
    _log.info("no Prometheus is configured; attainment is read from own scrapes of the gateways")
    return ScrapeSource(http, lambda: [f"http://{host}/metrics" for host in gateways.hosts], clock)

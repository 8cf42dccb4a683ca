"""One autoscaler process: its configuration, its parts, its port (health, metrics, decisions), its shutdown.

SIGTERM ends it at once: it has nothing to drain. It stores what it learned and releases the lease, so that the next one
continues where this one stopped. The configuration is not reloaded; only objects and the key change while it runs.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import httpx
from fastapi import FastAPI, Query, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from pydantic import Field

from paceline_autoscaler.controller import Autoscaler, Signals
from paceline_autoscaler.metrics_source.base import MetricsSource
from paceline_autoscaler.metrics_source.prometheus import PrometheusSource
from paceline_autoscaler.metrics_source.scraper import ScrapeSource
from paceline_autoscaler.output.decision_log import MAX_ENTRIES, DecisionLog, entry_json
from paceline_autoscaler.output.worker_events import EndedWorkers
from paceline_autoscaler.service_scaler import ScalerDeps, ScaleWriter
from paceline_autoscaler.signals import GatewayDemand, StreamClient, WorkerLoads, stream_client
from paceline_autoscaler.signals.attainment import AttainmentPoller
from paceline_autoscaler.signals.live import LOAD_SILENCE_S
from paceline_autoscaler.types import unix_clock
from paceline_core.auth import Signer
from paceline_core.clock import Clock
from paceline_core.config import Config, Listen
from paceline_core.kube import Cluster
from paceline_core.kube.connect import ClusterConfig
from paceline_core.process import admin_server, first
from paceline_core.telemetry import Metrics, get_logger

STUCK_S = 60.0
SCRAPE_LIMIT_S = 2.0
MEASURE_S = 5.0
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
    ledger: Path | None = None
    """File of decisions, one JSON object a line. None: only in memory."""


def make_app(autoscaler: Autoscaler, deps: ScalerDeps) -> FastAPI:
    """`/healthz`: passes continue; `/readyz`: services and workers are known; `/debug/decisions`: newest first."""
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
        service: Annotated[str | None, Query(max_length=320)] = None,
        limit: Annotated[int, Query(ge=1, le=MAX_ENTRIES)] = 50,
    ) -> Response:
        lines = b",".join(entry_json(entry) for entry in deps.log.recent(service, limit))
        return Response(b"[" + lines + b"]", media_type="application/json")

    app.add_exception_handler(404, _not_found)
    return app


async def _not_found(_: Request, __: Exception) -> Response:
    return JSONResponse({"error": "no such route; there are /healthz, /readyz, /metrics, /debug/decisions"}, 404)


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
    deps = ScalerDeps(
        ScaleWriter(site.cluster, metrics), DecisionLog(config.ledger), metrics, site.clock, unix_clock(site.clock)
    )
    timeout = httpx.Timeout(SCRAPE_LIMIT_S)
    async with stream_client(LOAD_SILENCE_S) as streams, httpx.AsyncClient(timeout=timeout, trust_env=False) as scrapes:
        link = StreamClient(streams, site.signer, site.clock)
        gateways = GatewayDemand(config.gateways, link, deps.now, wake.set)
        source = _source(config, scrapes, gateways, site.clock)
        attainment = AttainmentPoller(source, site.clock, metrics, max(config.interval_s, MEASURE_S))
        ended = EndedWorkers()
        signals = Signals(gateways, WorkerLoads(link, ended.on_load), attainment, wake, ended)
        yield Autoscaler(config.name, site.cluster, signals, deps, config.interval_s), deps


def _source(config: AutoscalerConfig, http: httpx.AsyncClient, gateways: GatewayDemand, clock: Clock) -> MetricsSource:
    prometheus = config.prometheus
    if prometheus is not None:
        _log.info("attainment is read from Prometheus", extra={"url": prometheus.url})
        return PrometheusSource(
            prometheus.url, deadline_s=prometheus.deadline_s, stale_after_s=prometheus.stale_after_s
        )
    _log.info("no Prometheus is configured; attainment is read from own scrapes of the gateways")
    return ScrapeSource(http, lambda: [f"http://{host}/metrics" for host in gateways.hosts], clock)

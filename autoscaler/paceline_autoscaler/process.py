"""One autoscaler process: its parts put together, its port, its end.

SIGTERM ends it at once: nothing it does needs draining. What was learned is stored and the lease given back, so that
the next one starts where this one stopped.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass

import httpx

from paceline_autoscaler.actuator import ScaleWriter
from paceline_autoscaler.config import AutoscalerConfig
from paceline_autoscaler.ended_workers import EndedWorkers
from paceline_autoscaler.ledger import DecisionLog
from paceline_autoscaler.loop import Autoscaler, Signals
from paceline_autoscaler.measures import AttainmentPoller
from paceline_autoscaler.now import unix_clock
from paceline_autoscaler.server import make_app
from paceline_autoscaler.signals import GatewayDemand, StreamClient, WorkerLoads, stream_client
from paceline_autoscaler.signals.workers import SILENCE_S
from paceline_autoscaler.source import MetricsSource, PrometheusSource, ScrapeSource
from paceline_autoscaler.subject import ScalerDeps
from paceline_core.auth import Signer
from paceline_core.clock import Clock
from paceline_core.kube import Cluster
from paceline_core.serving import admin_server
from paceline_core.tasks import first
from paceline_core.telemetry import Metrics, get_logger

SCRAPE_LIMIT_S = 2.0
MEASURE_S = 5.0
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class AutoscalerDeps:
    """What comes from outside: the cluster, the time, who signs internal tokens."""

    cluster: Cluster
    clock: Clock
    signer: Signer


async def serve(config: AutoscalerConfig, site: AutoscalerDeps, listening: socket.socket, stop: asyncio.Event) -> None:
    """Scale and answer until `stop`. Raises what broke the loop."""
    async with assembled(config, site) as (autoscaler, desk):
        http = admin_server(make_app(autoscaler, desk))
        _log.info("listening", extra={"address": ":".join(map(str, listening.getsockname()[:2]))})
        try:
            await first(autoscaler.run(), http.serve([listening]), stop.wait())
        finally:
            await autoscaler.close()


@contextlib.asynccontextmanager
async def assembled(config: AutoscalerConfig, site: AutoscalerDeps) -> AsyncIterator[tuple[Autoscaler, ScalerDeps]]:
    """The autoscaler and its desk; clients are closed at the end."""
    metrics, bell = Metrics("autoscaler"), asyncio.Event()
    desk = ScalerDeps(
        ScaleWriter(site.cluster, metrics), DecisionLog(config.ledger), metrics, site.clock, unix_clock(site.clock)
    )
    timeout = httpx.Timeout(SCRAPE_LIMIT_S)
    async with stream_client(SILENCE_S) as streams, httpx.AsyncClient(timeout=timeout, trust_env=False) as scrapes:
        link = StreamClient(streams, site.signer, site.clock)
        gateways = GatewayDemand(config.gateways, link, desk.now, bell.set)
        source = _source(config, scrapes, gateways, site.clock)
        measures = AttainmentPoller(source, site.clock, metrics, max(config.interval_s, MEASURE_S))
        ended = EndedWorkers()
        senses = Signals(gateways, WorkerLoads(link, ended.on_load), measures, bell, ended)
        yield Autoscaler(config.name, site.cluster, senses, desk, config.interval_s), desk


def _source(config: AutoscalerConfig, http: httpx.AsyncClient, gateways: GatewayDemand, clock: Clock) -> MetricsSource:
    told = config.prometheus
    if told is not None:
        _log.info("attainment is read from Prometheus", extra={"url": told.url})
        return PrometheusSource(told.url, deadline_s=told.deadline_s, stale_after_s=told.stale_after_s)
    _log.info("no Prometheus is configured; attainment is read from own scrapes of the gateways")
    return ScrapeSource(http, lambda: [f"http://{host}/metrics" for host in gateways.hosts], clock)

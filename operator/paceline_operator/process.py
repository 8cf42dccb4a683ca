"""One operator process: its parts, its port, its end.

The API server is spoken to over two connections of their own: one for work, one for the lease alone, so that a burst of
writes never delays a renewal. SIGTERM ends it at once: nothing it does needs draining, and the next leader goes on.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from paceline_core.clock import Clock
from paceline_core.kube.api.credentials import Access
from paceline_core.kube.api.server import KubeClient
from paceline_core.kube.lease import LeaseClient
from paceline_core.serving import admin_server
from paceline_core.tasks import cancel
from paceline_core.telemetry import Metrics, get_logger
from paceline_operator.config import OperatorConfig
from paceline_operator.health import HealthInputs, make_app
from paceline_operator.operator import Manager, ManagerDeps

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class OperatorDeps:
    """What comes from outside: how to reach the API server, the time, what to do to connections before their use."""

    config: OperatorConfig
    clock: Clock
    wrap: Callable[[KubeClient], KubeClient] = lambda api: api


async def serve(
    site: OperatorDeps, listening: socket.socket, stop: asyncio.Event, take_signals: Callable[[], None] = lambda: None
) -> None:
    """Reconcile and answer until `stop`. Raises what broke a part. kopf takes the signals: `take_signals` again."""
    metrics = Metrics("operator")
    async with _connections(site) as (api, own):
        config, clock = site.config, site.clock
        leases = LeaseClient(own, config.namespace, clock)
        operator = Manager(ManagerDeps(config, site.wrap(api), leases, clock, metrics, take_signals))
        vitals = HealthInputs(
            operator.world, operator.queue, lambda: operator.pulses, config.health, metrics, clock, operator.ended
        )
        http = admin_server(make_app(vitals))
        serving = asyncio.create_task(http.serve([listening]))
        stopped = asyncio.create_task(stop.wait())
        working = asyncio.create_task(operator.run())
        _log.info("listening", extra={"address": ":".join(map(str, listening.getsockname()[:2]))})
        try:
            done, _ = await asyncio.wait({working, serving, stopped}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in (working, stopped, serving):
                await cancel(task)


@contextlib.asynccontextmanager
async def _connections(site: OperatorDeps) -> AsyncIterator[tuple[KubeClient, KubeClient]]:
    access = Access(site.config.cluster.kubeconfig)
    api = await KubeClient.connect(access, site.clock)
    try:
        own = await KubeClient.connect(access, site.clock)
        try:
            yield api, own
        finally:
            await own.close()
    finally:
        await api.close()

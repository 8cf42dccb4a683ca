"""A gateway process: creates its parts, its two ports, and ends them in order.

Both ports are bound before anything starts, so that a port in use gives one clear message and no half-started gateway.
On SIGTERM readiness fails; new requests are accepted until load balancers have noticed (`lame_duck_s`), and each answer
is the last of its connection. Then new connections get `draining`, open streams run on for the grace period, and the
rest ends with an error. A second signal ends everything at once.
"""

import asyncio
import contextlib
import secrets
import socket
from dataclasses import dataclass
from functools import partial

from paceline_core.auth import FileSigner, Signer, TrustBundle
from paceline_core.auth.internal_token import GATEWAY_AUDIENCE
from paceline_core.clock import Clock
from paceline_core.errors import InvalidInput
from paceline_core.kube import Cluster, Namespaces
from paceline_core.process import admin_server, bind, first
from paceline_core.telemetry import Metrics, get_logger
from paceline_gateway.admin.app import AdminDeps, create_admin
from paceline_gateway.admin.control import AdminControl, DrainState, LogLevelOverride
from paceline_gateway.admin.views import DrainStage
from paceline_gateway.api.handlers import PublicApi
from paceline_gateway.config import GatewayConfig
from paceline_gateway.http.connection import Connection
from paceline_gateway.http.connection_pool import Address
from paceline_gateway.http.cors import CorsPolicy
from paceline_gateway.http.server import Server
from paceline_gateway.proxy.request_manager import GatewayDeps, RequestManager
from paceline_gateway.queueing.shared_fairness import SharedFairness
from paceline_gateway.quota.bucket_store import TTL_S
from paceline_gateway.quota.manager import QuotaManager
from paceline_gateway.quota_store.peer import PeerDeps, PeerStore
from paceline_gateway.quota_store.sync import CounterStore, QuotaSync
from paceline_gateway.routing.policies import ShortestTTFT
from paceline_gateway.services.cluster_watch import ClusterWatcher
from paceline_gateway.services.registry import LoadReportStreams, ServiceRegistry
from paceline_gateway.services.worker_deaths import WorkerDeaths
from paceline_gateway.telemetry.access_log import AccessLog
from paceline_gateway.telemetry.metrics import LogSinks, ProcessMetrics
from paceline_gateway.usage_writer import UsageWriter

SWEEP_S = 0.25
POLL_S = 0.05
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ListenSockets:
    """Two listening sockets."""

    public: socket.socket
    admin: socket.socket

    @classmethod
    def take(cls, config: GatewayConfig) -> "ListenSockets":
        """Bind both. Raises InvalidInput naming the field, the address and the fix."""
        public = bind(config.listen, "listen")
        try:
            return cls(public, bind(config.admin, "admin"))
        except InvalidInput:
            public.close()
            raise


@dataclass(frozen=True, slots=True)
class QuotaBackend:
    """`pump` connects a gateway's own counters to the shared ones; `peers` may host the shared ones."""

    quotas: QuotaManager
    pump: QuotaSync | None = None
    peers: PeerStore | None = None


def counters(  # noqa: PLR0913, PLR0917 - the parts that sharing uses
    config: GatewayConfig, cluster: Cluster, signer: Signer, clock: Clock, metrics: Metrics, admin: Address
) -> QuotaBackend:
    """This gateway's counters: only its own, or a part of the shared ones. `admin`: the address of its admin port."""
    holder = f"{config.name}.{secrets.token_hex(4)}"  # a restarted gateway holds nothing from before
    store: CounterStore
    peers = None
    if config.quota.redis is not None:
        from paceline_gateway.quota_store.redis import RedisStore  # noqa: PLC0415 - a third of a second to import

        store = RedisStore(config.quota.redis, config.namespace)
    elif config.quota.lease:
        host, port = admin
        if host in ("0.0.0.0", "::"):  # noqa: S104 - other gateways reach it at the address of the pod's name
            host = socket.gethostbyname(socket.gethostname())
        ways = PeerDeps(cluster, signer, clock, config.limits, TTL_S)
        store = peers = PeerStore(holder, (host, port), ways)
    else:
        return QuotaBackend(QuotaManager())
    pump = QuotaSync(store, holder, config.quota.wait_s, clock, metrics)
    return QuotaBackend(QuotaManager(pump.send, holder, config.quota.gateways), pump, peers)


class GatewayProcess:
    """The parts of one gateway, started, drained and closed in order."""

    def __init__(
        self,
        config: GatewayConfig,
        cluster: Cluster,
        clock: Clock,
        ports: ListenSockets,
        outlets: LogSinks | None = None,
    ) -> None:
        self._outlets = outlets = outlets or LogSinks()
        metrics, signer = Metrics("gateway"), FileSigner(config.signing_key, issuer="gateway")
        access = AccessLog(outlets.lines if config.access_log else None, clock.utc)
        loads = LoadReportStreams(signer, clock)
        admin = ports.admin.getsockname()[:2]
        counts = counters(config, cluster, signer, clock, metrics, admin)
        self._pump = counts.pump
        self.registry = loads.listener = ServiceRegistry(
            config.limits,
            clock.monotonic,
            metrics,
            loads.follow,
            partial(ShortestTTFT, config.limits.lookahead_s),
            WorkerDeaths(config.name),
        )
        self.requests = requests = RequestManager(
            self.registry,
            GatewayDeps(config.limits, clock, signer, metrics, access, counts.quotas, config.name, outlets.spans),
        )
        self._config = config
        self._clock = clock
        self._ports = ports
        self._loads = loads
        cors = CorsPolicy(frozenset(config.cors_origins))
        self._gateway = PublicApi(requests, access, cors=cors)
        self.server = Server(self._gateway, config.limits, clock, cors=cors)
        self._series = ProcessMetrics(metrics, self.server, outlets)
        self._watcher = ClusterWatcher(
            cluster,
            Namespaces(config.namespace, keys=config.key_namespace),
            self.registry.on_snapshot,
            self.registry.on_workers,
            metrics,
        )
        self._watcher.on_tenants = requests.billing.on_tenants
        self._checkpoint = UsageWriter(requests.billing.ledger, cluster, config.namespace, clock)
        trust = TrustBundle(config.trust_bundle, GATEWAY_AUDIENCE, clock)
        self._leaving, self._levels = DrainState(), LogLevelOverride()
        control = AdminControl(self._leaving, self._levels, clock, lambda: requests.open, lambda: self.server.busy)
        seen = AdminDeps(requests, metrics, clock, config.name, trust, self._unready, control, counts.peers)
        self._http = admin_server(create_admin(seen))

    async def run(self, stop: asyncio.Event, abort: asyncio.Event) -> None:
        """Serve until `stop`, then drain until done, the grace period's end, or `abort`. Raises a watch's error."""
        self._watcher.start()
        if self._pump is not None:
            self._pump.start(self.requests.quotas, SharedFairness(self.registry.queues))
        self._checkpoint.start()
        await self.server.start(self._ports.public, Connection)
        serving = asyncio.create_task(self._http.serve([self._ports.admin]))
        sweeping = asyncio.create_task(self._sweep())
        _log.info("listening", extra={"public": _where(self._ports.public), "admin": _where(self._ports.admin)})
        try:
            await first(
                self._watcher.wait(),
                self._checkpoint.wait(),
                *([] if self._pump is None else [self._pump.wait()]),
                stop.wait(),
                self._leaving.asked.wait(),
            )
            await self._drain(abort)
        finally:
            sweeping.cancel()
            self.registry.changes.close()
            self._http.should_exit = True
            await self._close()
            await asyncio.gather(serving, sweeping, return_exceptions=True)

    async def _drain(self, abort: asyncio.Event) -> None:
        lame_duck_s, drain_s = self._config.lame_duck_s, self._config.drain_s
        self.server.settle()
        self._leaving.enter(DrainStage.SETTLING, self._clock.monotonic() + lame_duck_s)
        await first(self._clock.sleep(lame_duck_s), abort.wait())
        self.server.drain()
        self._leaving.enter(DrainStage.DRAINING, self._clock.monotonic() + drain_s)
        _log.info("draining", extra={"open": self.requests.open})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(drain_s):
                await first(self._emptied(), abort.wait())
        self._leaving.enter(DrainStage.CUTTING)
        self.requests.abort()
        _log.info("drained")

    async def _emptied(self) -> None:
        while self.requests.open or self.server.busy:
            await self._clock.sleep(POLL_S)

    async def _sweep(self) -> None:
        while True:
            await self._clock.sleep(SWEEP_S)
            self.server.sweep()
            self.requests.sweep()
            self._levels.sweep(self._clock.monotonic())
            self._series.show()

    async def _close(self) -> None:
        await self._checkpoint.close()
        await self._watcher.close()
        if self._pump is not None:
            await self._pump.close(self.requests.quotas)
        await self._loads.close()
        await self.server.close()
        await self.requests.pool.close()
        await asyncio.to_thread(self._outlets.spans.close)

    def _unready(self) -> str:
        if self.server.closing:
            return "draining"
        return self._watcher.unlisted


def _where(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    return f"{host}:{port}"

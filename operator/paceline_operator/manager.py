"""All parts of one operator put together, without its port: watches fill the world, workers empty the queue.

Order matters. Everything is listed once, then workers begin. Workers and watches are made before kopf is started, since
kopf takes every younger task for its own and ends it with itself. At the end workers stop first, then the lease is
given back, then watches, then kopf: an end in milliseconds, and the next leader begins at once.

One operator process: its parts, its port, its end.

The API server is spoken to over two connections of their own: one for work, one for the lease alone, so that a burst of
writes never delays a renewal. SIGTERM ends it at once: nothing it does needs draining, and the next leader goes on.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from paceline_core.clock import Clock
from paceline_core.kube import ObjectKey
from paceline_core.kube.client.client import KubeClient
from paceline_core.kube.client.credentials import Access, Credentials
from paceline_core.kube.client.watch import WatchLiveness
from paceline_core.kube.leader_election import LeaseApi, LeaseClient
from paceline_core.process import admin_server, cancel
from paceline_core.telemetry import Metrics, get_logger
from paceline_operator import handlers
from paceline_operator.config import OperatorConfig
from paceline_operator.controllers.hop_keys import KeyRotator, RotationConfig
from paceline_operator.controllers.inferenceservice import ReconcilerDeps
from paceline_operator.controllers.pod_diagnostics import PodDiagnostics
from paceline_operator.controllers.reconciler import KEYS, Reconciler
from paceline_operator.health import HealthInputs, make_app
from paceline_operator.leader_election import LeaderElection
from paceline_operator.state.child_cache import CHILD_KINDS, NAMESPACE
from paceline_operator.state.cluster_state import ClusterState
from paceline_operator.state.informers import Informers
from paceline_operator.state.object_cache import KINDS
from paceline_operator.state.workqueue import Priority, ReconcileKey, WorkQueue
from paceline_operator.write.executor import PlanExecutor, WriteGate, event_recorder
from paceline_operator.write.rate_limiter import WriteRateLimiter

EXPRESS = 2
RESYNC_PER_S = 50.0
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ManagerDeps:
    """What comes from outside. `kopf_started` is called when kopf has taken the signals for itself."""

    config: OperatorConfig
    api: KubeClient
    leases: LeaseApi
    clock: Clock
    metrics: Metrics
    kopf_started: Callable[[], None]


class Manager:
    """`run` until cancelled; `ended` names a part that should not have ended."""

    def __init__(self, means: ManagerDeps) -> None:
        config, api, clock, metrics = means.config, means.api, means.clock, means.metrics
        self._config = config
        self._kopf_started = means.kopf_started
        self._clock = clock
        self.queue = WorkQueue(clock)
        self.world = ClusterState(self.queue, ReconcileKey(KEYS, ObjectKey(config.namespace, KEYS)))
        self.leadership = LeaderElection(
            means.leases, config.name or socket.gethostname(), config.lease.ttl_s, clock, metrics
        )
        self._budget = WriteRateLimiter(clock, config.requests_per_second, config.burst)
        hands = PlanExecutor(api, self.world.cache, WriteGate(self.leadership, self._budget, metrics), clock)
        self._events = event_recorder(api, clock, self._uid_of, metrics)
        rotation = RotationConfig(config.namespace, config.keys.rotation_days, self._trust_changed)
        keys = KeyRotator(api, hands, rotation, clock)
        lookout = PodDiagnostics(api, clock)
        tools = ReconcilerDeps(
            self.world, hands, lookout, config.settings(), clock, self._events.record, self.queue.put
        )
        self.reconciler = Reconciler(tools, keys, metrics)
        self.watches = Informers(api, self.world, hands, clock, config.cluster.namespaces)
        self.child_pulses = {kind: WatchLiveness(kind, clock) for kind in CHILD_KINDS}
        self.object_pulses = {kind: WatchLiveness(kind, clock) for kind in KINDS}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @property
    def pulses(self) -> list[WatchLiveness]:
        """Every watch there is."""
        seen = [pulse for kind, pulse in self.object_pulses.items() if kind not in self.watches.unseen]
        return [*self.child_pulses.values(), *seen]

    def ended(self) -> str:
        """Which part ended, or nothing."""
        return next((f"{name} ended" for name, task in self._tasks.items() if task.done()), "")

    async def run(self) -> None:
        """Work until cancelled. Raises what ended a part."""
        try:
            self._begin()
            await self._listed()
            self._work()
            async with self._kopf() as kopf:
                self._tasks["kopf"] = kopf
                await asyncio.wait(self._tasks.values(), return_when=asyncio.FIRST_COMPLETED)
                _log.error("a part ended; so does the process", extra={"part": self.ended()})
                for task in self._tasks.values():
                    if task.done():
                        task.result()
        finally:
            await self._end()

    def _begin(self) -> None:
        namespaces = self._config.cluster.namespaces
        watched = tuple(dict.fromkeys((*namespaces, self._config.namespace))) if namespaces else ()
        for kind, pulse in self.child_pulses.items():
            self._start(f"watch {kind}", self.watches.children(kind, watched, pulse))
        self._start("leadership", self.leadership.run())

    def _work(self) -> None:
        for number in range(self._config.workers):
            self._start(f"worker {number}", self._worker(Priority.RESYNC))
        for number in range(EXPRESS):
            self._start(f"express worker {number}", self._worker(Priority.EDIT))
        self._start("audits", self.watches.audits())
        self._start("resync", self._resync())
        self._enqueue_all(Priority.CREATE)

    async def _listed(self) -> None:
        await self.watches.first()
        while not self.world.complete:
            if ended := self.ended():
                raise RuntimeError(ended)
            await self._clock.sleep(0.02)
        _log.info("everything is listed", extra={"keys": len(self.world.everything())})

    @contextlib.asynccontextmanager
    async def _kopf(self) -> AsyncIterator["asyncio.Task[None]"]:
        kinds = tuple(kind for kind in KINDS if kind not in self.watches.unseen)
        pulses = {kind: self.object_pulses[kind] for kind in kinds}
        credentials = Credentials(Access(self._config.cluster.kubeconfig))
        session = handlers.KopfLogin(credentials, pulses, self.watches.audit, self._clock)
        registry = handlers.registry_of(kinds, self.world.on_object, session.login)
        async with handlers.running(registry, self._config.cluster.namespaces, session.repeats) as task:
            self._kopf_started()
            yield task

    async def _worker(self, limit: Priority) -> None:
        while True:
            await self.leadership.led()
            item = await self.queue.get(limit)
            outcome = await self.reconciler.run(item, self.queue.backlog.urgency(item))
            if outcome.failed:
                self.queue.failed(item, outcome.again_s, outcome.refused)
            else:
                self.queue.done(item, outcome.again_s)

    async def _resync(self) -> None:
        while True:
            await self._clock.sleep(self._config.resync_s)
            for kind in KINDS:
                self.watches.audit(kind)
            for number, item in enumerate(self.world.everything()):
                self.queue.put(item, Priority.RESYNC)
                if number % RESYNC_PER_S == 0:
                    await self._clock.sleep(1.0)

    def _enqueue_all(self, urgency: Priority) -> None:
        self.queue.put(self.world.keys_item, Priority.EDIT)
        self.queue.put(ReconcileKey(NAMESPACE, ObjectKey("", self._config.namespace)), Priority.EDIT)
        for item in self.world.everything():
            self.queue.put(item, Priority.EDIT if item.kind == NAMESPACE else urgency)

    def _trust_changed(self) -> None:
        self.queue.put(ReconcileKey(NAMESPACE, ObjectKey("", self._config.namespace)), Priority.EDIT)
        for item in self.world.everything():
            if item.kind == NAMESPACE:
                self.queue.put(item, Priority.EDIT)

    async def _uid_of(self, kind: str, key: ObjectKey) -> str:
        return self.world.objects.uid(ReconcileKey(kind, key))

    def _start(self, name: str, part: Coroutine[Any, Any, None]) -> None:
        self._tasks[name] = asyncio.create_task(part, name=name)

    async def _end(self) -> None:
        await self._stop([name for name in self._tasks if "worker" in name or name in ("leadership", "resync")])
        await self._budget.close()
        await self._events.close()
        await self.leadership.release()
        await self._stop(list(self._tasks))
        self.queue.close()

    async def _stop(self, names: list[str]) -> None:
        await cancel(*(self._tasks[name] for name in names))


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

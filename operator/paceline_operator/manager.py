"""One operator process: its parts, its port, its shutdown.

Order matters. Every kind is listed once before workers begin, so that a restart acts on complete knowledge. At the end
workers stop first, then the lease is released, then watches stop: the end takes milliseconds, and the next leader
begins at once. Nothing that SIGTERM interrupts needs draining.

There are two connections to the API server: one for work, one only for the lease, so that a burst of writes never
delays a renewal.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from paceline_core.clock import Clock
from paceline_core.kube import Namespaces, ObjectKey
from paceline_core.kube.client.client import KubeClient
from paceline_core.kube.client.credentials import Access
from paceline_core.kube.cluster import LeaseApi
from paceline_core.kube.leader_election import LeaderElector, LeaseClient
from paceline_core.process import admin_server, cancel, first
from paceline_core.telemetry import Metrics, get_logger
from paceline_operator.config import OperatorConfig
from paceline_operator.controllers.inferenceservice import ReconcilerDeps
from paceline_operator.controllers.pod_diagnostics import PodDiagnostics
from paceline_operator.controllers.reconciler import KEYS, Reconciler
from paceline_operator.controllers.signing_keys import KeyRotator, RotationConfig
from paceline_operator.handlers import run_under_kopf
from paceline_operator.health import HealthInputs, make_app
from paceline_operator.state.child_cache import NAMESPACE
from paceline_operator.state.cluster_state import ClusterState, Informers
from paceline_operator.state.workqueue import Priority, ReconcileKey, WorkQueue
from paceline_operator.write.executor import PlanExecutor, WriteGate, event_recorder
from paceline_operator.write.throttle import WriteRateLimiter

LEASE = "paceline-operator"
EXPRESS = 2
RESYNC_PER_S = 50.0
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ManagerDeps:
    config: OperatorConfig
    api: KubeClient
    leases: LeaseApi
    clock: Clock
    metrics: Metrics


class Manager:
    """`run` until cancelled; `ended` names a part that should not have ended."""

    def __init__(self, deps: ManagerDeps) -> None:
        config, api, clock, metrics = deps.config, deps.api, deps.clock, deps.metrics
        self._config = config
        self._clock = clock
        self.queue = WorkQueue(clock)
        self.state = ClusterState(self.queue, ReconcileKey(KEYS, ObjectKey(config.namespace, KEYS)))
        self.leader_elector = LeaderElector(
            deps.leases, LEASE, config.name or socket.gethostname(), config.lease.ttl_s, clock
        )
        self._budget = WriteRateLimiter(clock, config.requests_per_second, config.burst)
        executor = PlanExecutor(api, self.state.children, WriteGate(self.leader_elector, self._budget, metrics), clock)
        self._events = event_recorder(api, clock, self._uid_of, metrics)
        rotation = RotationConfig(config.namespace, config.keys.rotation_days, self._enqueue_namespaces)
        keys = KeyRotator(api, executor, rotation, clock)
        diagnostics = PodDiagnostics(api, clock)
        reconciler_deps = ReconcilerDeps(
            self.state, executor, diagnostics, config.settings(), clock, self._events.record, self.queue.put
        )
        self.reconciler = Reconciler(reconciler_deps, keys, metrics)
        self.informers = Informers(
            api, self.state, executor, clock, Namespaces(config.namespace, config.cluster.namespaces)
        )
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def ended(self) -> str:
        return next((f"{name} ended" for name, task in self._tasks.items() if task.done()), "")

    async def run(self) -> None:
        """Work until cancelled. Raises the error that ended a part."""
        try:
            for kind, watch in self.informers.watches().items():
                self._start(f"watch {kind}", watch)
            self._start("leadership", self.leader_elector.run())
            while not self.state.complete:
                if ended := self.ended():
                    raise RuntimeError(ended)
                await self._clock.sleep(0.02)
            _log.info("everything is listed", extra={"keys": len(self.state.everything())})
            self._work()
            await asyncio.wait(self._tasks.values(), return_when=asyncio.FIRST_COMPLETED)
            _log.error("a part ended; so does the process", extra={"part": self.ended()})
            for task in self._tasks.values():
                if task.done():
                    task.result()
        finally:
            await self._end()

    def _work(self) -> None:
        for number in range(self._config.workers):
            self._start(f"worker {number}", self._worker(Priority.RESYNC))
        for number in range(EXPRESS):
            self._start(f"express worker {number}", self._worker(Priority.EDIT))
        self._start("resync", self._resync())
        self.queue.put(self.state.keys_item, Priority.EDIT)
        self.queue.put(ReconcileKey(NAMESPACE, ObjectKey("", self._config.namespace)), Priority.EDIT)
        for item in self.state.everything():
            self.queue.put(item, Priority.EDIT if item.kind == NAMESPACE else Priority.CREATE)

    async def _worker(self, limit: Priority) -> None:
        while True:
            await self.leader_elector.wait()
            item = await self.queue.get(limit)
            result = await self.reconciler.run(item, self.queue.backlog.priority(item))
            if result.failed:
                self.queue.failed(item, result.again_s, result.refused)
            else:
                self.queue.done(item, result.again_s)

    async def _resync(self) -> None:
        while True:
            await self._clock.sleep(self._config.resync_s)
            for number, item in enumerate(self.state.everything()):
                self.queue.put(item, Priority.RESYNC)
                if number % RESYNC_PER_S == 0:
                    await self._clock.sleep(1.0)

    def _enqueue_namespaces(self) -> None:
        self.queue.put(ReconcileKey(NAMESPACE, ObjectKey("", self._config.namespace)), Priority.EDIT)
        for item in self.state.everything():
            if item.kind == NAMESPACE:
                self.queue.put(item, Priority.EDIT)

    async def _uid_of(self, kind: str, key: ObjectKey) -> str:
        return self.state.objects.uid(ReconcileKey(kind, key))

    def _start(self, name: str, part: Coroutine[Any, Any, None]) -> None:
        self._tasks[name] = asyncio.create_task(part, name=name)

    async def _end(self) -> None:
        early = [name for name in self._tasks if "worker" in name or name in ("leadership", "resync")]
        await cancel(*(self._tasks[name] for name in early))
        await self._budget.close()
        await self._events.close()
        await self.leader_elector.resign()
        await cancel(*self._tasks.values())
        self.queue.close()


@dataclass(frozen=True, slots=True)
class OperatorDeps:
    config: OperatorConfig
    clock: Clock
    wrap: Callable[[KubeClient], KubeClient] = lambda api: api


async def serve(deps: OperatorDeps, listening: socket.socket) -> None:
    """Reconcile and serve the port until a signal. Raises the error that ended a part."""
    async with _connections(deps) as (api, lease_api):
        await run_under_kopf(lambda: _work(deps, deps.wrap(api), lease_api, listening))


async def _work(deps: OperatorDeps, api: KubeClient, lease_api: KubeClient, listening: socket.socket) -> None:
    config, clock, metrics = deps.config, deps.clock, Metrics("operator")
    leases = LeaseClient(lease_api, config.namespace, clock)
    manager = Manager(ManagerDeps(config, api, leases, clock, metrics))
    inputs = HealthInputs(
        manager.state,
        manager.queue,
        lambda: manager.informers.liveness,
        config.health,
        metrics,
        clock,
        manager.ended,
        lambda: manager.leader_elector.leads,
    )
    _log.info("listening", extra={"address": ":".join(map(str, listening.getsockname()[:2]))})
    await first(manager.run(), admin_server(make_app(inputs)).serve([listening]))


@contextlib.asynccontextmanager
async def _connections(deps: OperatorDeps) -> AsyncIterator[tuple[KubeClient, KubeClient]]:
    access = Access(deps.config.cluster.kubeconfig)
    api = await KubeClient.connect(access, deps.clock)
    try:
        own = await KubeClient.connect(access, deps.clock)
        try:
            yield api, own
        finally:
            await own.close()
    finally:
        await api.close()

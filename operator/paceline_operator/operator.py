"""All parts of one operator put together, without its port: watches fill the world, workers empty the queue.

Order matters. Everything is listed once, then workers begin. Workers and watches are made before kopf is started, since
kopf takes every younger task for its own and ends it with itself. At the end workers stop first, then the lease is
given back, then watches, then kopf: an end in milliseconds, and the next leader begins at once.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from paceline_core.clock import Clock
from paceline_core.kube import ObjectKey
from paceline_core.kube.api.credentials import Access, Credentials
from paceline_core.kube.api.pulse import WatchLiveness
from paceline_core.kube.api.server import KubeClient
from paceline_core.kube.leadership import LeaseApi
from paceline_core.tasks import cancel
from paceline_core.telemetry import Metrics, get_logger
from paceline_operator import handlers
from paceline_operator.budget import WriteRateLimiter
from paceline_operator.cache import CHILD_KINDS, NAMESPACE
from paceline_operator.carry import PlanExecutor, WriteGate
from paceline_operator.config import OperatorConfig
from paceline_operator.keys import KeyRotator, RotationConfig
from paceline_operator.leader import LeaderElection
from paceline_operator.lookout import PodDiagnostics
from paceline_operator.objects import KINDS
from paceline_operator.queue import Priority, ReconcileKey, WorkQueue
from paceline_operator.reconcile import KEYS, Reconciler
from paceline_operator.services import ReconcilerDeps
from paceline_operator.tell import event_recorder
from paceline_operator.watches import Informers
from paceline_operator.world import ClusterState

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

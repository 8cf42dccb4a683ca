"""The loop: watch, look, decide, act; once an interval, and at once when somebody is held at zero. A thin shell.

Nothing here decides. A pass reads the last word of every signal and waits for none of them; only the scales are asked
for, because a decision must know what it changes. One autoscaler at a time holds the lease; the others watch and
listen, so that they can take over with their pictures full and the learned state stored. A watch that is lost leaves
what it told in force: it may still raise replicas, and removes none until it is back.
"""

import asyncio
from dataclasses import dataclass, field
from typing import TypeVar

from paceline_autoscaler.cluster_state import ClusterView, follow
from paceline_autoscaler.model.observation import SignalSnapshot, observe
from paceline_autoscaler.output import status
from paceline_autoscaler.output.worker_events import EndedWorkers, event
from paceline_autoscaler.service_scaler import ScalerDeps, ServiceScaler
from paceline_autoscaler.signals import GatewayDemand, WorkerLoads
from paceline_autoscaler.signals.attainment import AttainmentPoller
from paceline_autoscaler.types import ScalingSpec
from paceline_core.errors import Forbidden, NotFound
from paceline_core.kube import Cluster, Listed, ObjectKey, Scale, ServiceEndpoints, WatchLost
from paceline_core.kube.cluster import Manifest, WatchEvent
from paceline_core.kube.leader_election import LeaderElector
from paceline_core.objects.metadata import ACCELERATOR_PROFILE, INFERENCE_SERVICE
from paceline_core.process import first
from paceline_core.telemetry import FaultLog, get_logger

WORKERS = "Pod"
LEASE = "paceline-autoscaler"
LEASE_TTL_S = 15.0
RENEW_S = 5.0
LEAST_PAUSE_S = 0.1
SWEEP_S = 600.0
UNMADE_PAUSE_S = 0.5
UNMADE_S = 10.0
"""How long after its first pass a service without Deployments is looked at again so soon."""
SWEEP_AGAIN_S = 10.0
_AT_ONCE = 16
T = TypeVar("T")
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Signals:
    """Everything that is heard and measured. `bell` is rung when a request is held or a service is new."""

    gateways: GatewayDemand
    workers: WorkerLoads
    measures: AttainmentPoller
    bell: asyncio.Event
    ended: EndedWorkers = field(default_factory=EndedWorkers)


class Autoscaler:
    """One process's autoscaler: `run` until cancelled, then `close`; `step` is one pass. `name` holds the lease."""

    def __init__(self, name: str, cluster: Cluster, senses: Signals, desk: ScalerDeps, interval_s: float) -> None:
        self._cluster = cluster
        self._candidate = LeaderElector(cluster, LEASE, name, LEASE_TTL_S, desk.clock)
        self._complaints = FaultLog(_log)
        self._senses = senses
        self._desk = desk
        self._interval_s = interval_s
        self._world = ClusterView()
        self._subjects: dict[ObjectKey, ServiceScaler] = {}
        self._gate = asyncio.Semaphore(_AT_ONCE)
        self._unmade: dict[ObjectKey, float] = {}
        self._swept_at: float | None = None
        self.passed_at = desk.clock.monotonic()

    @property
    def ready(self) -> bool:
        """Whether services and workers are known, be it from before a watch was lost."""
        return self._world.known

    @property
    def world(self) -> ClusterView:
        """What the cluster holds."""
        return self._world

    async def run(self) -> None:
        """Watch, listen, measure and pass, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(follow(self._cluster.watch(INFERENCE_SERVICE), self.on_service))
            group.create_task(follow(self._cluster.watch(ACCELERATOR_PROFILE), self.on_profile))
            group.create_task(follow(self._cluster.watch_endpoints(), self.on_workers))
            group.create_task(self._senses.gateways.run())
            group.create_task(self._senses.measures.run(self._world.goals.values))
            group.create_task(self._passes())

    async def close(self) -> None:
        """Store what was learned, give the lease back, close the streams."""
        for subject in self._subjects.values():
            if self._candidate.leads:
                await subject.remember(at_once=True)
        await self._candidate.resign()
        await self._senses.gateways.close()
        await self._senses.workers.close()

    async def step(self) -> None:
        """One pass over all services."""
        began = self._desk.clock.monotonic()
        if not self._world.known or not await self._may_write():
            self._senses.gateways.isolations.take()
            self._senses.ended.take()
            self._drop(list(self._subjects) if self._candidate.elsewhere else [])
            self._swept_at, self.passed_at = None, began
            return
        for service, told in self._senses.gateways.isolations.take():
            await self._cluster.event(event(service, told))
        for ended in self._senses.ended.take():
            await self._cluster.event(ended)
        goals = dict(self._world.goals)
        gone = [key for key in self._subjects if not self._still(key)]
        self._drop(gone)
        await self._sweep(began, now=bool(gone))
        results = await asyncio.gather(*(self._pass(key, goal) for key, goal in goals.items()), return_exceptions=True)
        whole = True
        for key, result in zip(goals, results, strict=True):
            if isinstance(result, BaseException):
                whole = False
                self._report(key, result)
        self._finish(began, whole=whole)

    def on_workers(self, event: WatchEvent[ServiceEndpoints]) -> None:
        """Take one event of the watch on workers, and follow who is there."""
        self._note(WORKERS, event)
        self._senses.ended.on_workers(event, self._world.workers)
        self._world.on_workers(event)
        self._senses.workers.follow(self._world.workers.values())

    def on_service(self, event: WatchEvent[Manifest]) -> None:
        """Take one event of the watch on services."""
        known = len(self._world.uids)
        self._note(INFERENCE_SERVICE, event)
        self._world.on_service(event)
        if len(self._world.uids) > known:
            self._senses.bell.set()  # a new one gets its status at once

    def on_profile(self, event: WatchEvent[Manifest]) -> None:
        """Take one event of the watch on profiles."""
        self._note(ACCELERATOR_PROFILE, event)
        self._world.on_profile(event)

    async def _may_write(self) -> bool:
        """Take or keep the lease, when it is time to."""
        if not self._candidate.renewed_within(RENEW_S):
            await self._candidate.renew()
            self._desk.metrics.gauge("paceline_autoscaler_watch_synced", "Lease").set(self._candidate.answered)
        return self._candidate.leads

    def _note(self, kind: str, event: WatchEvent[T]) -> None:
        """Keep account of what is current; a fault that lasts is told once."""
        gauge = self._desk.metrics.gauge("paceline_autoscaler_watch_synced", kind)
        match event:
            case WatchLost(reason):
                self._complaints.begin(f"the watch of {kind} is lost; what is known goes on", reason)
                gauge.set(0)
            case Listed():
                self._complaints.end(f"the watch of {kind} is lost; what is known goes on")
                gauge.set(1)

    async def _passes(self) -> None:
        while True:
            self._senses.bell.clear()
            await self.step()
            await self._pause()

    async def _pause(self) -> None:
        """An interval, or until the bell rings; always a little, so that a bell that rings on cannot spin the loop."""
        await self._desk.clock.sleep(LEAST_PAUSE_S)
        await first(self._desk.clock.sleep(max(self.pause_s() - LEAST_PAUSE_S, 0.0)), self._senses.bell.wait())

    def pause_s(self) -> float:
        """Seconds until the next pass; fewer while Deployments of a new service are about to be made."""
        now = self._desk.clock.monotonic()
        self._unmade = {key: since for key, since in self._unmade.items() if key in self._world.goals}
        soon = any(now - since < UNMADE_S for since in self._unmade.values())
        return min(self._interval_s, UNMADE_PAUSE_S) if soon else self._interval_s

    async def _pass(self, key: ObjectKey, goal: ScalingSpec) -> None:
        async with self._gate:
            try:
                subject = self._subject(key)
                await subject.recall()
                scales = await self._desk.actuator.scales(goal)
                self._unmade.pop(key, None)
            except NotFound:
                self._unmade.setdefault(key, self._desk.clock.monotonic())
                return  # the Deployments are not made yet
            except Forbidden as error:
                await self._refused(key, error)
                raise
            if not self._candidate.leads:
                return
            seen = observe(self._desk.now(), goal, self._sightings(subject, goal, scales))
            decision = await subject.decide(seen, scales)
            self._complaints.end(_failed(key))
            if self._candidate.leads:
                quantiles = dict(self._senses.measures.quantiles(goal.service))
                await subject.say(self._world.services[key], seen, decision, quantiles, self._world.lost)
            if self._candidate.leads:
                await subject.remember()

    async def _refused(self, key: ObjectKey, error: Forbidden) -> None:
        """What a decision needs may not be read; the object's status can still say so."""
        if key in self._subjects and self._candidate.leads:
            await self._subjects[key].say_refused(self._world.services[key], str(error))

    def _sightings(self, subject: ServiceScaler, goal: ScalingSpec, scales: dict[str, Scale]) -> SignalSnapshot:
        key, senses, metrics = subject.key, self._senses, self._desk.metrics
        status.age(metrics, key, "gateways", senses.gateways.age_s())
        status.age(metrics, key, "attainment", senses.measures.age_s(goal.service))
        return SignalSnapshot(
            demand=senses.gateways.demand(goal.service),
            scales=scales,
            endpoints=self._world.endpoints(key),
            endpoints_lost=self._world.workers_lost,
            objects_lost=self._world.services_lost,
            loads=senses.workers.loads(goal.service),
            attainment=senses.measures.attainment(goal.service),
            state_unread=bool(subject.unread),
        )

    def _subject(self, key: ObjectKey) -> ServiceScaler:
        if key not in self._subjects:
            self._subjects[key] = ServiceScaler(key, self._world.services[key].metadata.uid, self._desk)
        return self._subjects[key]

    def _still(self, key: ObjectKey) -> bool:
        service = self._world.services.get(key)
        return service is not None and service.metadata.uid == self._subjects[key].uid

    async def _sweep(self, at: float, *, now: bool) -> None:
        """Forget services that are gone: when one went, now and then those that went unseen, soon what failed."""
        due = now or self._swept_at is None or at - self._swept_at >= SWEEP_S
        alive = self._world.alive
        if due and alive is not None:
            whole = await self._desk.actuator.forget_gone(alive)
            self._swept_at = at if whole else at - SWEEP_S + SWEEP_AGAIN_S

    def _drop(self, keys: list[ObjectKey]) -> None:
        for key in keys:
            del self._subjects[key]
            self._complaints.end(_failed(key))
            self._desk.ledger.forget(str(key))
            status.forget(self._desk.metrics, key)

    def _report(self, key: ObjectKey, error: BaseException) -> None:
        """One service's failure is its own; whoever wrote it, the others are scaled on."""
        if not isinstance(error, Exception):
            raise error
        self._desk.metrics.counter("paceline_autoscaler_actuation_errors_total", key.namespace, key.name).inc()
        if self._complaints.begin(_failed(key), f"{type(error).__name__}: {error}"):
            _log.debug("why", exc_info=error)

    def _finish(self, began: float, *, whole: bool) -> None:
        clock, metrics = self._desk.clock, self._desk.metrics
        self.passed_at = clock.monotonic()
        metrics.histogram("paceline_autoscaler_reconcile_seconds").observe(self.passed_at - began)
        if whole:
            metrics.gauge("paceline_autoscaler_last_success_timestamp_seconds").set(clock.utc().timestamp())


def _failed(key: ObjectKey) -> str:
    return f"the passes over {key} fail"

"""The loop: once an interval, and at once when a request is held at zero, observe, decide and act on every service.

A thin loop around the pure `decide`. A pass reads the latest value of every signal and waits for none of them. Scales
are requested once a minute and before a write: if they are not what the decision assumed, it is made again with what
was read. One autoscaler at a time holds the lease; the
others keep watching, so that they take over with complete signals and the stored state. Data of a lost watch stay in
force: they may still raise replicas, but none are removed until the watch is back.
"""

import asyncio
from dataclasses import dataclass, field
from typing import TypeVar

from paceline_autoscaler.cluster_state import ClusterView, follow
from paceline_autoscaler.model.observation import SignalSnapshot, observe
from paceline_autoscaler.output.scale_writer import StoredState
from paceline_autoscaler.output.worker_events import EndedWorkers, isolation_event
from paceline_autoscaler.policies import decide
from paceline_autoscaler.scale_cache import existing_replicas
from paceline_autoscaler.service_scaler import ScalerDeps, ServiceScaler, record_age
from paceline_autoscaler.signals import GatewayDemand, WorkerLoads
from paceline_autoscaler.signals.attainment import AttainmentPoller
from paceline_autoscaler.signals.live import loads_of
from paceline_autoscaler.state import State
from paceline_autoscaler.types import Decision, MissingSignal, Observation, ScalingSpec
from paceline_core.errors import Forbidden, NotFound
from paceline_core.kube import Cluster, Listed, ObjectKey, ServiceEndpoints, Upserted, WatchLost
from paceline_core.kube.cluster import Manifest, WatchEvent
from paceline_core.kube.leader_election import LeaderElector
from paceline_core.objects.metadata import ACCELERATOR_PROFILE, INFERENCE_SERVICE
from paceline_core.process import first
from paceline_core.registry import METRICS
from paceline_core.registry.metrics import SERVICE
from paceline_core.telemetry import FaultLog, get_logger

WORKERS = "Pod"
LEASE = "paceline-autoscaler"
LEASE_TTL_S = 15.0
RENEW_S = 5.0
MIN_PAUSE_S = 0.1
SWEEP_S = 600.0
NOT_CREATED_PAUSE_S = 0.5
NOT_CREATED_S = 10.0
"""For this long after its first pass, a service without Deployments is checked at the shorter interval."""
SWEEP_RETRY_S = 10.0
_AT_ONCE = 16
T = TypeVar("T")
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Signals:
    """All inputs. `wake` begins the next pass: a request is held, a service is new, a retired worker is unready."""

    gateways: GatewayDemand
    workers: WorkerLoads
    attainment: AttainmentPoller
    wake: asyncio.Event
    ended: EndedWorkers = field(default_factory=EndedWorkers)


class Autoscaler:
    """One process's autoscaler: `run` until cancelled, then `close`; `step` is one pass. `name` holds the lease."""

    def __init__(self, name: str, cluster: Cluster, signals: Signals, deps: ScalerDeps, interval_s: float) -> None:
        self._cluster = cluster
        self._candidate = LeaderElector(cluster.leases, LEASE, name, LEASE_TTL_S, deps.clock)
        self._faults = FaultLog(_log)
        self._signals = signals
        self._deps = deps
        self._interval_s = interval_s
        self.cluster_view = ClusterView()
        self._scalers: dict[ObjectKey, ServiceScaler] = {}
        self._gate = asyncio.Semaphore(_AT_ONCE)
        self._not_created: dict[ObjectKey, float] = {}
        self._swept_at: float | None = None
        self.passed_at = deps.clock.monotonic()

    @property
    def ready(self) -> bool:
        """Whether services and workers are known, even if a watch is lost since."""
        return self.cluster_view.known

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(follow(self._cluster.watch(INFERENCE_SERVICE), self.on_service))
            group.create_task(follow(self._cluster.watch(ACCELERATOR_PROFILE), self.on_profile))
            group.create_task(follow(self._cluster.watch_endpoints(), self.on_workers))
            group.create_task(self._signals.gateways.run())
            group.create_task(self._signals.attainment.run(self.cluster_view.specs.values))
            if self._deps.past is not None:
                group.create_task(self._deps.past.run())
            group.create_task(self._passes())

    def learned(self, key: ObjectKey) -> StoredState | None:
        """What is known of a service from its past; None if it is not scaled here."""
        scaler = self._scalers.get(key)
        return None if scaler is None or scaler.unread else scaler.learned

    async def close(self) -> None:
        for scaler in self._scalers.values():
            if self._candidate.leads:
                await scaler.save_state(at_once=True)
        await self._candidate.resign()
        await self._signals.gateways.close()
        await self._signals.workers.close()

    async def step(self) -> None:
        clock, metrics = self._deps.clock, self._deps.metrics
        began = clock.monotonic()
        if self.cluster_view.known and not self._candidate.renewed_within(RENEW_S):
            await self._candidate.renew()
            metrics.gauge("paceline_autoscaler_watch_synced", "Lease").set(self._candidate.answered)
        if not (self.cluster_view.known and self._candidate.leads):
            self._signals.gateways.isolations.take()
            self._signals.ended.take()
            self._drop(list(self._scalers) if self._candidate.elsewhere else [])
            for scaler in self._scalers.values():
                scaler.forget_scales()
            self._swept_at, self.passed_at = None, began
            return
        for service, isolated in self._signals.gateways.isolations.take():
            await self._cluster.event(isolation_event(service, isolated))
        for ended in self._signals.ended.take():
            await self._cluster.event(ended)
        specs = dict(self.cluster_view.specs)
        uids = {key: service.metadata.uid for key, service in self.cluster_view.services.items()}
        gone = [key for key, scaler in self._scalers.items() if uids.get(key) != scaler.uid]
        self._drop(gone)
        for key in gone:
            self._deps.ledger.delete(str(key))
        await self._sweep(began, now=bool(gone))
        results = await asyncio.gather(*(self._pass(key, spec) for key, spec in specs.items()), return_exceptions=True)
        whole = True
        for key, result in zip(specs, results, strict=True):
            if isinstance(result, BaseException):
                whole = False
                self._report(key, result)
        self.passed_at = clock.monotonic()
        metrics.histogram("paceline_autoscaler_reconcile_seconds").observe(self.passed_at - began)
        if whole:
            metrics.gauge("paceline_autoscaler_last_success_timestamp_seconds").set(clock.utc().timestamp())

    def on_workers(self, event: WatchEvent[ServiceEndpoints]) -> None:
        self._note(WORKERS, event)
        self._signals.ended.on_workers(event, self.cluster_view.workers)
        self.cluster_view.on_workers(event)
        self._signals.workers.follow(self.cluster_view.workers.values())
        match event:
            case Upserted(item) if (scaler := self._scalers.get(item.service)) and scaler.may_lower(item.endpoints):
                self._signals.wake.set()  # a scale-down has waited for this

    def on_service(self, event: WatchEvent[Manifest]) -> None:
        known = len(self.cluster_view.uids)
        self._note(INFERENCE_SERVICE, event)
        self.cluster_view.on_service(event)
        if len(self.cluster_view.uids) > known:
            self._signals.wake.set()  # a new service gets its status at once

    def on_profile(self, event: WatchEvent[Manifest]) -> None:
        self._note(ACCELERATOR_PROFILE, event)
        self.cluster_view.on_profile(event)

    def _note(self, kind: str, event: WatchEvent[T]) -> None:
        """Record which watches are in sync; logs a lasting fault once."""
        gauge = self._deps.metrics.gauge("paceline_autoscaler_watch_synced", kind)
        match event:
            case WatchLost(reason):
                self._faults.begin(f"the watch of {kind} is lost; the last known state stays in force", reason)
                gauge.set(0)
            case Listed():
                self._faults.end(f"the watch of {kind} is lost; the last known state stays in force")
                gauge.set(1)

    async def _passes(self) -> None:
        """A pass each interval, or once `wake` is set; MIN_PAUSE_S apart, so that a stuck event cannot make it spin."""
        clock, wake = self._deps.clock, self._signals.wake
        while True:
            wake.clear()
            await self.step()
            await clock.sleep(MIN_PAUSE_S)
            await first(clock.sleep(max(self.pause_s() - MIN_PAUSE_S, 0.0)), wake.wait())

    def pause_s(self) -> float:
        """Seconds until the next pass; fewer while the Deployments of a new service are about to be created."""
        now = self._deps.clock.monotonic()
        self._not_created = {key: since for key, since in self._not_created.items() if key in self.cluster_view.specs}
        soon = any(now - since < NOT_CREATED_S for since in self._not_created.values())
        return min(self._interval_s, NOT_CREATED_PAUSE_S) if soon else self._interval_s

    async def _pass(self, key: ObjectKey, spec: ScalingSpec) -> None:
        async with self._gate:
            try:
                if (scaler := self._scalers.get(key)) is None:
                    scaler = ServiceScaler(key, self.cluster_view.services[key].metadata.uid, self._deps)
                    self._scalers[key] = scaler
                await scaler.load_state()
                scaler.take_past()
                lengths = self._signals.gateways.lengths
                scaler.add_lengths(lengths.take(spec.service, whole=not scaler.learned.lengths))
                observation, decision, state = await self._decide(scaler, spec)
                self._not_created.pop(key, None)
            except NotFound:
                self._not_created.setdefault(key, self._deps.clock.monotonic())
                return  # the Deployments are not created yet
            except Forbidden as error:
                # the object's status still reports the missing right
                if key in self._scalers and self._candidate.leads:
                    await self._scalers[key].report_forbidden(self.cluster_view.services[key], str(error))
                raise
            if not self._candidate.leads:
                return
            await scaler.execute(observation, decision, state)
            self._faults.end(_failed(key))
            if self._candidate.leads:
                await scaler.report(self.cluster_view.services[key], observation, decision, self.cluster_view.lost)
            if self._candidate.leads:
                await scaler.save_state()

    async def _decide(self, scaler: ServiceScaler, spec: ScalingSpec) -> tuple[Observation, Decision, State]:
        """Observe and decide; what is to be written is decided on scales that were read just now."""
        existing = existing_replicas(self.cluster_view.endpoints(scaler.key))
        just_read = await scaler.know_scales(self.cluster_view.services[scaler.key], spec, existing)
        observation = observe(self._deps.now(), spec, self._snapshot(scaler, spec))
        decision, state = decide(observation, scaler.state, scaler.knowledge)
        if decision.changes and not just_read and await scaler.read_scales(spec):
            observation = observe(self._deps.now(), spec, self._snapshot(scaler, spec))
            decision, state = decide(observation, scaler.state, scaler.knowledge)
        return observation, decision, state

    def _snapshot(self, scaler: ServiceScaler, spec: ScalingSpec) -> SignalSnapshot:
        key, signals, metrics = scaler.key, self._signals, self._deps.metrics
        reports = signals.workers.reports(spec.service)
        demand_age_s, attainment_age_s = signals.gateways.age_s(), signals.attainment.age_s(spec.service)
        record_age(metrics, key, "gateways", demand_age_s)
        record_age(metrics, key, "attainment", attainment_age_s)
        return SignalSnapshot(
            demand=signals.gateways.demand(spec.service),
            scales=scaler.scales,
            endpoints=scaler.see_workers(self.cluster_view.endpoints(key), reports),
            endpoints_lost=MissingSignal.ENDPOINTS in self.cluster_view.lost,
            objects_lost=MissingSignal.OBJECTS in self.cluster_view.lost,
            loads=loads_of(reports),
            attainment=signals.attainment.attainment(spec.service),
            latencies=signals.attainment.latencies(spec.service),
            demand_age_s=demand_age_s,
            attainment_age_s=attainment_age_s,
            state_unread=bool(scaler.unread),
            recent_edit=scaler.recent_edit,
            other_scaler=scaler.other_scaler,
        )

    async def _sweep(self, at: float, *, now: bool) -> None:
        """Delete what is kept of deleted services: at once, every SWEEP_S for missed ones, soon after a failure."""
        due = now or self._swept_at is None or at - self._swept_at >= SWEEP_S
        alive = self.cluster_view.alive
        if due and alive is not None:
            self._deps.ledger.delete_others([str(service.key) for service in alive])
            whole = await self._deps.writer.forget_gone(alive)
            self._swept_at = at if whole else at - SWEEP_S + SWEEP_RETRY_S

    def _drop(self, keys: list[ObjectKey]) -> None:
        for key in keys:
            del self._scalers[key]
            self._faults.end(_failed(key))
            self._deps.ledger.forget(str(key))
            if self._deps.past is not None:
                self._deps.past.forget(str(key))
            for row in METRICS.values():
                if row.owner == "autoscaler" and row.labels[:2] == SERVICE:
                    self._deps.metrics.forget(row.name, key.namespace, key.name)

    def _report(self, key: ObjectKey, error: BaseException) -> None:
        """One service's failure, whatever its cause, does not stop the others."""
        if not isinstance(error, Exception):
            raise error
        self._deps.metrics.counter("paceline_autoscaler_actuation_errors_total", key.namespace, key.name).inc()
        if self._faults.begin(_failed(key), f"{type(error).__name__}: {error}"):
            _log.debug("why", exc_info=error)


def _failed(key: ObjectKey) -> str:
    return f"the passes over {key} fail"

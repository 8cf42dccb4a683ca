"""The loop: watch, look, decide, act; once an interval, and at once when somebody is held at zero. A thin shell.

Nothing here decides. A pass reads the last word of every signal and waits for none of them; only the scales are asked
for, because a decision must know what it changes. One autoscaler at a time holds the lease; the others watch and
listen, so that they can take over with their pictures full and the learned state stored.
"""

import asyncio
from dataclasses import dataclass

from paceline_autoscaler import series
from paceline_autoscaler.measures import Measures
from paceline_autoscaler.nouns import Goal
from paceline_autoscaler.observe import Sightings, observe
from paceline_autoscaler.signals import Gateways, Workers
from paceline_autoscaler.subject import Desk, Subject
from paceline_autoscaler.world import World, follow
from paceline_core.errors import NotFound, PacelineError
from paceline_core.kube import Cluster, Key, Scale, ServiceEndpoints
from paceline_core.kube.cluster import WatchEvent
from paceline_core.telemetry import get_logger

LEASE = "paceline-autoscaler"
LEASE_TTL_S = 15.0
LEAST_PAUSE_S = 0.1
_AT_ONCE = 16
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Senses:
    """Everything that is heard and measured. `bell` is rung when a request is held."""

    gateways: Gateways
    workers: Workers
    measures: Measures
    bell: asyncio.Event


class Autoscaler:
    """One process's autoscaler: `run` until cancelled, then `close`; `step` is one pass. `name` holds the lease."""

    def __init__(self, name: str, cluster: Cluster, senses: Senses, desk: Desk, interval_s: float) -> None:
        self._name = name
        self._cluster = cluster
        self._senses = senses
        self._desk = desk
        self._interval_s = interval_s
        self._world = World()
        self._subjects: dict[Key, Subject] = {}
        self._renewed: float | None = None
        self._gate = asyncio.Semaphore(_AT_ONCE)
        self.passed_at = desk.clock.monotonic()

    @property
    def ready(self) -> bool:
        """Whether services and workers are known."""
        return self._world.listed

    @property
    def world(self) -> World:
        """What the cluster holds."""
        return self._world

    async def run(self) -> None:
        """Watch, listen, measure and pass, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(follow(self._cluster.watch("InferenceService"), self._world.on_service))
            group.create_task(follow(self._cluster.watch("AcceleratorProfile"), self._world.on_profile))
            group.create_task(follow(self._cluster.watch_endpoints(), self.on_workers))
            group.create_task(self._senses.gateways.run())
            group.create_task(self._senses.measures.run(self._world.goals.values))
            group.create_task(self._passes())

    async def close(self) -> None:
        """Store what was learned, give the lease back, close the streams."""
        for subject in self._subjects.values():
            await subject.remember(at_once=True)
        if self._renewed is not None:
            try:
                await self._cluster.release(LEASE, self._name)
            except PacelineError as error:
                _log.info("the lease runs out by itself", extra={"reason": str(error)})
        await self._senses.gateways.close()
        await self._senses.workers.close()

    async def step(self) -> None:
        """One pass over all services."""
        began = self._desk.clock.monotonic()
        if self._world.services_lost or not await self._leads(began):
            self.passed_at = began
            return
        goals = dict(self._world.goals)
        self._drop([key for key in self._subjects if not self._still(key)])
        results = await asyncio.gather(*(self._pass(key, goal) for key, goal in goals.items()), return_exceptions=True)
        whole = True
        for key, result in zip(goals, results, strict=True):
            if isinstance(result, BaseException):
                whole = False
                self._report(key, result)
        self._finish(began, whole=whole)

    def on_workers(self, event: WatchEvent[ServiceEndpoints]) -> None:
        """Take one event of the watch on workers, and follow who is there."""
        self._world.on_workers(event)
        self._senses.workers.follow(self._world.workers.values())

    async def _passes(self) -> None:
        while True:
            self._senses.bell.clear()
            await self.step()
            await self._pause()

    async def _pause(self) -> None:
        """An interval, or until the bell rings; always a little, so that a bell that rings on cannot spin the loop."""
        await self._desk.clock.sleep(LEAST_PAUSE_S)
        waits = {
            asyncio.create_task(self._desk.clock.sleep(max(self._interval_s - LEAST_PAUSE_S, 0.0))),
            asyncio.create_task(self._senses.bell.wait()),
        }
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _leads(self, now: float) -> bool:
        """Whether the lease is ours; one that cannot be renewed is ours until it runs out."""
        if self._renewed is not None and now - self._renewed < LEASE_TTL_S / 3:
            return True
        try:
            held = await self._cluster.lease(LEASE, self._name, LEASE_TTL_S)
        except PacelineError as error:
            _log.warning("the lease could not be renewed", extra={"reason": str(error)})
            return self._renewed is not None and now - self._renewed < LEASE_TTL_S
        self._renewed = now if held else None
        if not held:
            self._drop(list(self._subjects))
        return held

    async def _pass(self, key: Key, goal: Goal) -> None:
        async with self._gate:
            try:
                subject = await self._subject(key)
                scales = await self._desk.actuator.scales(goal)
            except NotFound:
                return  # the Deployments are not made yet
            seen = observe(self._desk.now(), goal, self._sightings(key, goal, scales))
            decision = await subject.decide(seen, scales)
            quantiles = dict(self._senses.measures.quantiles(goal.service))
            await subject.say(self._world.services[key], seen, decision, quantiles)
            await subject.remember()

    def _sightings(self, key: Key, goal: Goal, scales: dict[str, Scale]) -> Sightings:
        senses, metrics = self._senses, self._desk.metrics
        series.age(metrics, key, "gateways", senses.gateways.age_s())
        series.age(metrics, key, "attainment", senses.measures.age_s(goal.service))
        return Sightings(
            demand=senses.gateways.demand(goal.service),
            scales=scales,
            endpoints=self._world.endpoints(key),
            endpoints_lost=self._world.workers_lost,
            loads=senses.workers.loads(goal.service),
            attainment=senses.measures.attainment(goal.service),
        )

    async def _subject(self, key: Key) -> Subject:
        uid = self._world.services[key].metadata.uid
        if key not in self._subjects:
            state = await self._desk.actuator.recall(key)
            self._subjects[key] = Subject(key, uid, state, self._desk)
        return self._subjects[key]

    def _still(self, key: Key) -> bool:
        service = self._world.services.get(key)
        return service is not None and service.metadata.uid == self._subjects[key].uid

    def _drop(self, keys: list[Key]) -> None:
        for key in keys:
            del self._subjects[key]
            self._desk.ledger.forget(str(key))
            series.forget(self._desk.metrics, key)

    def _report(self, key: Key, error: BaseException) -> None:
        """One service's failure is its own; whoever wrote it, the others are scaled on."""
        if not isinstance(error, Exception):
            raise error
        self._desk.metrics.counter("paceline_autoscaler_actuation_errors_total", key.namespace, key.name).inc()
        _log.warning("a pass failed", extra={"service": str(key)}, exc_info=error)

    def _finish(self, began: float, *, whole: bool) -> None:
        clock, metrics = self._desk.clock, self._desk.metrics
        self.passed_at = clock.monotonic()
        metrics.histogram("paceline_autoscaler_loop_seconds").observe(self.passed_at - began)
        if whole:
            metrics.gauge("paceline_autoscaler_last_success_timestamp_seconds").set(clock.utc().timestamp())

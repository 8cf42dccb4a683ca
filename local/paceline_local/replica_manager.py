"""All workers of a run: applies `plan_replicas`, and writes the operator's part of each service's status.

One pass at a time reads scales and workers, starts and drains as planned, and publishes endpoints and status. A pass
follows every change, and a slow tick repeats it, so that a missed change does no harm.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol

from paceline_core.clock import rfc3339
from paceline_core.errors import Unreachable
from paceline_core.kube.cluster import ObjectKey, ScaleTarget, ServiceEndpoints
from paceline_core.launch import WorkerLaunch
from paceline_core.objects.metadata import INFERENCE_SERVICE
from paceline_core.objects.resolved import ResolvedService
from paceline_core.objects.workload_status import VALID, ConditionValue
from paceline_core.replicas import DrainReplica, StartReplica, count_replicas, plan_replicas
from paceline_local import status
from paceline_local.apiserver import ObjectStore
from paceline_local.context import RunContext
from paceline_local.process import POLL_S
from paceline_local.rundir import trim
from paceline_local.worker_process import Hooks, WorkerProcess

TICK_S = 5.0
LEFT_LOGS = 20
_ALL_VALID: Mapping[ObjectKey, ConditionValue] = {}


class Launches(Protocol):
    """Builds a worker's launch; `Launcher`, or a test's own."""

    def launch(self, target: ScaleTarget, name: str) -> WorkerLaunch: ...

    def release(self, name: str) -> None: ...


class ReplicaManager:
    """Every worker of every service. `publish` gets all endpoints with each pass.

    `left_logs`: how many logs of ended workers are kept. `accepted`: whether each service is valid.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - its parts
        self,
        site: RunContext,
        store: ObjectStore,
        services: Mapping[ObjectKey, ResolvedService],
        launcher: Launches,
        publish: Callable[[Iterable[ServiceEndpoints]], None],
        left_logs: int = LEFT_LOGS,
        accepted: Mapping[ObjectKey, ConditionValue] = _ALL_VALID,
    ) -> None:
        self._site = site
        self._store = store
        self._services = services
        self._launcher = launcher
        self._publish = publish
        self._accepted = accepted
        self._workers: list[WorkerProcess] = []
        self._started: Counter[ScaleTarget] = Counter()
        self._drains: set[asyncio.Task[None]] = set()
        self._left_logs: deque[Path] = deque()
        self._left_logs_limit = left_logs
        self._news = asyncio.Event()

    def wake(self) -> None:
        """Something changed: run another pass."""
        self._news.set()

    async def run(self) -> None:
        while True:
            self._news.clear()
            self.reconcile()
            try:
                async with asyncio.timeout(TICK_S):
                    await self._news.wait()
            except TimeoutError:
                for log in self._site.run.logs.glob("*.log"):
                    trim(log)

    async def stop(self) -> None:
        """Drain every worker; returns when all are gone."""
        for worker in self._workers:
            if not worker.draining:
                self._drain(worker)
        self._write_status()
        if self._drains:
            await asyncio.wait(self._drains)
        self._write_status()

    def kill(self) -> None:
        for worker in self._workers:
            worker.kill()

    async def wait_ready(self) -> dict[ObjectKey, Unreachable]:
        """Return when each service has a ready worker or is given up: the latter, with the reasons."""
        began = self._site.clock.monotonic()
        while True:
            late = self._site.clock.monotonic() - began
            wanted = {target.service for target in self._store.scales if self._store.scales.get(target).replicas}
            unserved = wanted - {worker.target.service for worker in self._workers if worker.ready}
            given_up = {w.target.service: w for w in self._workers if w.failing or late > w.startup_limit_s}
            if unserved <= given_up.keys():
                return {key: given_up[key].unserved(late) for key in self._services if key in unserved}
            await self._site.clock.sleep(POLL_S)

    @property
    def workers(self) -> list[dict[str, str]]:
        return [worker.shown for worker in self._workers if not worker.gone]

    def reconcile(self) -> None:
        """Do one pass; needs a running loop."""
        self._workers = [worker for worker in self._workers if not worker.gone]
        desired = {target: self._store.scales.get(target).replicas for target in self._store.scales}
        for action in plan_replicas(desired, [worker.replica for worker in self._workers]):
            match action:
                case StartReplica(target):
                    self._started[target] += 1
                    hooks = Hooks(self._launcher.launch, self.wake, self._event)
                    worker = WorkerProcess(target, self._started[target], self._site, hooks)
                    self._workers.append(worker)
                    worker.start()
                case DrainReplica(target, ordinal):
                    self._drain(next(w for w in self._workers if (w.target, w.ordinal) == (target, ordinal)))
        self._write_status()

    def _drain(self, worker: WorkerProcess) -> None:
        def release(drained: asyncio.Task[None]) -> None:
            self._drains.discard(drained)
            self._launcher.release(worker.name)
            self._left_logs.append(worker.log)
            if len(self._left_logs) > self._left_logs_limit:
                self._left_logs.popleft().unlink(missing_ok=True)

        drain = worker.drain()
        self._drains.add(drain)
        drain.add_done_callback(release)

    def _write_status(self) -> None:
        there = [worker for worker in self._workers if not worker.gone]
        every = [
            ServiceEndpoints(key, tuple(worker.endpoint for worker in there if worker.target.service == key))
            for key in self._services
        ]
        for item in every:
            self._store.put_endpoints(item)
        self._publish(every)
        replicas = [worker.replica for worker in there]
        for key, service in self._services.items():
            targets = {pool.name: ScaleTarget(key, pool.name) for pool in service.pools}
            observed = status.ObservedReplicas(
                pools={name: count_replicas(target, replicas) for name, target in targets.items()},
                desired=sum(self._store.scales.get(target).replicas for target in targets.values()),
                failing=tuple(w.problem for w in self._workers if w.target.service == key and w.failing),
            )
            before = self._store.objects.get(INFERENCE_SERVICE, key)["status"].get("conditions", ())
            now, accepted = rfc3339(self._site.clock.utc()), self._accepted.get(key, VALID)
            reported = status.status(service, observed, self._site.endpoint, before, now, accepted)
            self._store.objects.patch_status(INFERENCE_SERVICE, key, reported, status.MANAGER)

    def _event(self, target: ScaleTarget, reason: str, message: str) -> None:
        event = {
            "kind": INFERENCE_SERVICE,
            "key": str(target.service),
            "type": "Warning",
            "reason": reason,
            "message": message,
        }
        self._store.add_event({**event, "extra": {"pool": target.pool}}, self._site.clock.utc())

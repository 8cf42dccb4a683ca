"""Retires workers before a scale is lowered, so that the cluster removes those that lose least, and takes that back.

    a decision lowers a pool ──▶ retire its victims ──▶ the watch shows them unready ──▶ lower the scale ──▶ they end
                                       │                                                      │
                                       └──── a later decision needs them: they come back ◀────┘

Each pass plans anew from the decision and the workers' own reports. So an autoscaler that takes over continues, and one
that dies leaves workers that serve again after RETIRE_LIMIT_S. A scale waits for its victims no longer than
UNREADY_LIMIT_S, and not at all for those that did not accept the call: then the cluster chooses.

To decisions a retired worker is a ready one. It costs no start to have it back, so no other is ordered in its place.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace

from paceline_autoscaler.output.retire_client import RetireClient
from paceline_autoscaler.output.victims import PoolWorker, RetirePlan, plan_retirement
from paceline_autoscaler.types import Decision, PoolDecision
from paceline_core.clock import Clock
from paceline_core.kube import Endpoint, ObjectKey
from paceline_core.objects.naming import STABLE
from paceline_core.telemetry import get_logger
from paceline_core.wire import LoadReport

UNREADY_LIMIT_S = 10.0
"""Three failed readiness probes and the way to the watch take 4 s."""
RENEW_LIMIT_S = 60.0
"""A retired worker that the cluster still has this long after its retirement began comes back: it removed others."""
BACK_S = 10.0
"""The longest time from a worker's return to its next successful readiness probe."""

_log = get_logger(__name__)

Reports = Mapping[str, LoadReport]
"""The recent load reports of a service's workers, by name."""


class WorkerRetirement:
    """The retired workers of one service. Every pass calls `see`, then `apply` with what was decided on it."""

    def __init__(self, service: ObjectKey, client: RetireClient, clock: Clock) -> None:
        self._service = str(service)
        self._client = client
        self._clock = clock
        self._workers: Mapping[str, Endpoint] = {}
        self._reports: Reports = {}
        self._since: dict[str, float] = {}
        """When the retirement of each retired worker began."""
        self._back: dict[str, float] = {}
        self._awaited: frozenset[str] = frozenset()

    def see(self, endpoints: Iterable[Endpoint], reports: Reports) -> tuple[Endpoint, ...]:
        """Note the workers; returns them as decisions see them: ready if they are retired or have just come back."""
        now, found = self._clock.monotonic(), tuple(endpoints)
        self._workers = {e.name: e for e in found if e.track == STABLE and not e.terminating}
        self._reports = reports
        self._back = {name: at for name, at in self._back.items() if now - at < BACK_S}
        return tuple(replace(e, ready=True, stage=None) if self._can_serve(e) else e for e in found)

    def unready(self, endpoints: Iterable[Endpoint]) -> bool:
        """Whether a scale waits for workers of which none is ready any more."""
        return bool(self._awaited) and self._awaited.isdisjoint(e.name for e in endpoints if e.ready)

    async def apply(self, decision: Decision) -> frozenset[str]:
        """Retire, renew and bring back workers as a decision needs; returns the pools whose scales are to wait."""
        plans = [self._plan(pool) for pool in decision.pools]
        victims = [self._workers[name] for plan in plans for name in plan.retire]
        await asyncio.gather(*(self._unretire(name) for plan in plans for name in plan.unretire))
        accepted = await asyncio.gather(*(self._client.retire(self._service, worker) for worker in victims))
        retired = [worker for worker, accepts in zip(victims, accepted, strict=True) if accepts]
        self._note(retired)
        lowered = {pool.name for pool in decision.pools if _lowers(pool)}
        awaited = [
            worker
            for worker in retired
            if worker.ready and worker.pool in lowered and self._age_s(worker.name) < UNREADY_LIMIT_S
        ]
        self._awaited = frozenset(worker.name for worker in awaited)
        return frozenset(worker.pool for worker in awaited)

    def _plan(self, pool: PoolDecision) -> RetirePlan:
        workers = [
            PoolWorker(worker.name, worker.revision, worker.ready, self._reports.get(worker.name))
            for worker in self._workers.values()
            if worker.pool == pool.name
        ]
        lowered = _lowers(pool)
        plan = plan_retirement(workers, pool.replicas, lowered=lowered)
        kept = tuple(name for name in plan.retire if lowered or self._age_s(name) < RENEW_LIMIT_S)
        return RetirePlan(kept, plan.unretire + tuple(name for name in plan.retire if name not in kept))

    def _note(self, retired: Iterable[Endpoint]) -> None:
        before, now = self._since, self._clock.monotonic()
        self._since = {worker.name: before.get(worker.name, now) for worker in retired}
        if news := [name for name in self._since if name not in before]:
            _log.info("workers are retired for a scale-down", extra={"service": self._service, "workers": news})

    def _age_s(self, worker: str) -> float:
        now = self._clock.monotonic()
        return now - self._since.get(worker, now)

    def _can_serve(self, worker: Endpoint) -> bool:
        report = self._reports.get(worker.name)
        return not worker.terminating and (worker.name in self._back or (report is not None and report.retired))

    async def _unretire(self, name: str) -> None:
        if await self._client.unretire(self._service, self._workers[name]):
            self._back[name] = self._clock.monotonic()


def _lowers(pool: PoolDecision) -> bool:
    return pool.replicas < pool.current

"""Which workers of a pool a scale-down removes: those that the cluster takes first anyway, then the least busy. Pure.

A ReplicaSet removes a pod that has no node or is not ready before any ready one, whatever else holds of them
(`ActivePodsWithRanks` in kubernetes/kubernetes, pkg/controller/controller_utils.go). So workers that start go first;
the others are retired, which makes them unready. The least busy worker has the least remaining work, in its own
seconds; among equals those with the fewest cached tokens go first.

While a rollout replaces workers the Deployment divides a scale-down between two ReplicaSets, so none is retired then.
Known hole: the output of requests that wait within a worker does not count.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from math import inf

from paceline_core.wire import LoadReport


@dataclass(frozen=True, slots=True)
class PoolWorker:
    """A worker that is not ordered to end. `report` is its load, if it reported recently."""

    name: str
    revision: str
    ready: bool
    report: LoadReport | None = None

    @property
    def retired(self) -> bool:
        return self.report is not None and self.report.retired

    @property
    def starting(self) -> bool:
        return not (self.ready or self.retired)


@dataclass(frozen=True, slots=True)
class RetirePlan:
    """Names of the workers to retire or keep retired, and of those that come back."""

    retire: tuple[str, ...] = ()
    unretire: tuple[str, ...] = ()


def plan_retirement(workers: Collection[PoolWorker], replicas: int, *, lowered: bool) -> RetirePlan:
    """Plan for a pool that is to have so many replicas.

    `lowered`: that is fewer than are ordered. Otherwise no further worker is retired, and those that are stay so as
    long as there are more workers than replicas.
    """
    retired = [worker for worker in workers if worker.retired]
    candidates = workers if lowered else retired
    if len({worker.revision for worker in workers}) > 1:
        candidates = ()
    victims = choose_victims(candidates, len(workers) - replicas)
    reporting = {worker.name for worker in workers if worker.report is not None and not worker.starting}
    return RetirePlan(
        retire=tuple(name for name in victims if name in reporting),
        unretire=tuple(worker.name for worker in retired if worker.name not in victims),
    )


def choose_victims(workers: Iterable[PoolWorker], count: int) -> tuple[str, ...]:
    """The names of `count` workers, the first to go first: starting, retired, least busy, without a report."""
    return tuple(worker.name for worker in sorted(workers, key=_place)[: max(count, 0)])


def _place(worker: PoolWorker) -> tuple[bool, bool, float, int, str]:
    report = worker.report
    busy_s, cached = (inf, 0) if report is None else (remaining_s(report), report.kv.cached * report.kv.page_tokens)
    return not worker.starting, not worker.retired, busy_s, cached, worker.name


def remaining_s(report: LoadReport) -> float:
    """Replica-seconds of work that a worker still has: queued prompt tokens, and the output of what runs.

    An output token costs its part of a step with all slots in use, and its reads of the mean context.
    """
    step, kv = report.step_time, report.kv
    context = max(kv.total - kv.free - kv.cached, 0) * kv.page_tokens / max(report.running, 1)
    token_s = step.base / max(report.slots, 1) + step.sequence + step.kv * context
    return step.prefill * sum(report.queued_tokens.values()) + token_s * report.remaining_tokens

"""The operator's share of an InferenceService's status, as local mode writes it: pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paceline_cli.supervisor.replicas import Counts
from paceline_core.objects.resolved import ResolvedService
from paceline_core.workload import (
    NO_TROUBLE,
    VALID,
    ConditionValue,
    PoolCounts,
    RunningRevision,
    conditions,
    progress,
    readiness,
    workload,
)

MANAGER = "paceline-operator"
SHOWN = 3
Condition = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ObservedReplicas:
    """One service's replicas by pool, the number wanted over all pools, and the workers that keep ending: why."""

    pools: Mapping[str, Counts]
    desired: int
    failing: tuple[str, ...] = ()

    @property
    def ready(self) -> int:
        """Replicas that take requests, over all pools."""
        return sum(counts.ready for counts in self.pools.values())

    @property
    def leaving(self) -> int:
        """Replicas that finish their streams, or will."""
        return sum(counts.draining for counts in self.pools.values()) + max(self.ready - self.desired, 0)

    @property
    def settled(self) -> bool:
        """Whoever is wanted is ready, and nobody leaves."""
        return self.ready >= self.desired and not self.leaving


def status(  # noqa: PLR0913, PLR0917 - what it speaks of
    service: ResolvedService,
    observed: ObservedReplicas,
    endpoint: str,
    before: Sequence[Condition],
    now: str,
    accepted: ConditionValue = VALID,
) -> dict[str, Any]:
    """What the operator says; `now` is RFC 3339 UTC, `before` the conditions it wrote last."""
    pools = [PoolCounts(name, c.ready, c.starting, c.draining) for name, c in observed.pools.items()]
    least, most = sum(pool.min for pool in service.pools), sum(pool.max for pool in service.pools)
    model = service.model
    run = RunningRevision(
        service.revision, endpoint, service.emulated, model.served_name, least, most, model=model.source
    )
    verdicts = _verdicts(observed, accepted)
    return {
        "observedGeneration": 1,
        "conditions": conditions(verdicts, before, now),
        "workload": workload(pools, observed.desired, run, verdicts),
    }


def _verdicts(observed: ObservedReplicas, accepted: ConditionValue) -> dict[str, ConditionValue]:
    trouble = _trouble(observed.failing)
    return {
        "Accepted": accepted,
        "Ready": readiness(observed.ready, observed.desired, trouble),
        "Progressing": progress(observed.ready, observed.desired, settled=observed.settled, leaving=observed.leaving),
        "Degraded": trouble,
    }


def _trouble(failing: Sequence[str]) -> ConditionValue:
    if not failing:
        return NO_TROUBLE
    return ConditionValue("True", "BackOff", f"Workers keep ending: {', '.join(failing[:SHOWN])}.")

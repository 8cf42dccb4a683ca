"""A service's status as the few facts that a screen has room for: pure, from the object alone."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paceline_core.objects import InferenceService, read
from paceline_core.objects.status import TargetState
from paceline_core.units import brief, seconds

BAD_WHEN = {"Accepted": "False", "MetricsFresh": "False", "Degraded": "True", "CapacityBlocked": "True"}


@dataclass(frozen=True, slots=True)
class Promise:
    """One target: `interactive ttft p95`, what was observed (or None) of what is promised, its burn rate."""

    name: str
    observed: str | None
    target: str
    burn: float | None

    @property
    def broken(self) -> bool:
        """Whether the budget will not last its window."""
        return self.burn is not None and self.burn > 1.0


@dataclass(frozen=True, slots=True)
class StatusRow:
    """One service. `decision` is the autoscaler's last sentence, `troubles` are conditions that ask for attention."""

    name: str
    model: str
    emulated: bool
    ready: int
    starting: int
    draining: int
    desired: int
    promises: tuple[Promise, ...]
    decision: str
    reason: str
    cost: str
    troubles: tuple[str, ...]

    @property
    def replicas(self) -> str:
        """`2/3 ready, 1 starting`."""
        more = [f"{n} {word}" for n, word in ((self.starting, "starting"), (self.draining, "draining")) if n]
        return ", ".join([f"{self.ready}/{self.desired} ready", *more])


def row(document: Mapping[str, Any]) -> StatusRow:
    """Read one InferenceService."""
    service = read(InferenceService, document)
    status = service.status
    pools = status.workload.pools
    ready, starting = sum(pool.ready for pool in pools), sum(pool.starting for pool in pools)
    desired = _desired(status.workload.summary, ready + starting)
    return StatusRow(
        name=service.key,
        model=service.spec.model.served_name or service.name,
        emulated=status.workload.emulated,
        ready=min(ready, desired),
        starting=starting,
        draining=sum(pool.draining for pool in pools),
        desired=desired,
        promises=tuple(_promise(target) for target in status.slo),
        decision=status.scaling.decision,
        reason=status.scaling.reason,
        cost=status.cost.per_hour or "",
        troubles=tuple(c.message for c in status.conditions if BAD_WHEN.get(c.type) == c.status),
    )


def _promise(target: TargetState) -> Promise:
    observed = None if target.observed is None else brief(seconds(target.observed))
    name = f"{target.cls} {target.metric} {target.quantile}"
    return Promise(name, observed, brief(seconds(target.target)), target.burn)


def _desired(summary: str, default: int) -> int:
    """The second number of `3/4`, `3/4 emulated` or `3/4 NameTaken`."""
    wanted = summary.partition("/")[2].partition(" ")[0]
    return int(wanted) if wanted.isdigit() else default

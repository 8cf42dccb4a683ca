"""A service's status as the few facts that a screen has room for: pure, from the object alone.

The columns of `kubectl get pisvc`, made here from the same rows of the CRD, so that both always say the same.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from paceline_core.objects import InferenceService, read
from paceline_core.objects.crd import crd
from paceline_core.objects.status import TargetState
from paceline_core.units import brief, seconds


@cache
def header() -> tuple[str, ...]:
    return ("NAMESPACE", "NAME", *(title.upper() for title, _, _ in _columns()))


def cells(document: Mapping[str, Any], now: datetime) -> tuple[str, ...]:
    metadata = document["metadata"]
    found = ((type_, _at(document, path)) for _, type_, path in _columns())
    return (metadata["namespace"], metadata["name"], *(_cell(type_, value, now) for type_, value in found))


def age(since: str | None, now: datetime) -> str:
    """`45s`, `12m`, `5h`, `3d`; empty when there is no time."""
    if not since:
        return ""
    passed = max(0, int((now - datetime.fromisoformat(since)).total_seconds()))
    for size, unit, enough in ((86400, "d", 2), (3600, "h", 2), (60, "m", 2)):
        if passed >= size * enough:
            return f"{passed // size}{unit}"
    return f"{passed}s"


@cache
def _columns() -> tuple[tuple[str, str, str], ...]:
    (version,) = crd(InferenceService)["spec"]["versions"]
    shown = (column for column in version["additionalPrinterColumns"] if not column.get("priority"))
    return tuple((column["name"], column["type"], column["jsonPath"]) for column in shown)


def _at(document: Any, path: str) -> Any:
    for step in path.removeprefix(".").split("."):
        document = document.get(step) if isinstance(document, Mapping) else None
    return document


def _cell(type_: str, value: Any, now: datetime) -> str:
    if value is None:
        return ""
    return age(str(value), now) if type_ == "date" else str(value)


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
    problems: tuple[str, ...]

    @property
    def replicas(self) -> str:
        more = [f"{n} {word}" for n, word in ((self.starting, "starting"), (self.draining, "draining")) if n]
        return ", ".join([f"{self.ready}/{self.desired} ready", *more])


def row(document: Mapping[str, Any]) -> StatusRow:
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
        problems=tuple(c.message for c in status.conditions if BAD_WHEN.get(c.type) == c.status),
    )


def _promise(target: TargetState) -> Promise:
    observed = None if target.observed is None else brief(seconds(target.observed))
    name = f"{target.cls} {target.metric} {target.quantile}"
    return Promise(name, observed, brief(seconds(target.target)), target.burn)


def _desired(summary: str, default: int) -> int:
    """The second number of `3/4`, `3/4 emulated` or `3/4 NameTaken`."""
    wanted = summary.partition("/")[2].partition(" ")[0]
    return int(wanted) if wanted.isdigit() else default

"""A service's status as the few facts that fit a screen, and as lines: pure, from the object alone."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from paceline_core.objects import InferenceService, read
from paceline_core.units import brief, seconds


def age(since: str | None, now: datetime) -> str:
    """`45s`, `12m`, `5h`, `3d`; empty if there is no time."""
    if not since:
        return ""
    passed = max(0, int((now - datetime.fromisoformat(since)).total_seconds()))
    for size, unit, enough in ((86400, "d", 2), (3600, "h", 2), (60, "m", 2)):
        if passed >= size * enough:
            return f"{passed // size}{unit}"
    return f"{passed}s"


BAD_WHEN = {
    "Accepted": "False",
    "SLOFeasible": "False",
    "MetricsFresh": "False",
    "Degraded": "True",
    "CapacityBlocked": "True",
}


@dataclass(frozen=True, slots=True)
class Promise:
    """A target: `interactive ttft p95`, the observed value (or None), the promised one, the burn rate."""

    name: str
    observed: str | None
    target: str
    burn: float | None

    @property
    def broken(self) -> bool:
        return self.burn is not None and self.burn > 1.0


@dataclass(frozen=True, slots=True)
class StatusRow:
    """A service. `decision` is the autoscaler's last sentence, `problems` are conditions that need attention."""

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
    # the second number of `3/4`, `3/4 emulated` or `3/4 NameTaken`
    wanted = status.workload.summary.partition("/")[2].partition(" ")[0]
    desired = int(wanted) if wanted.isdigit() else ready + starting
    return StatusRow(
        name=service.key,
        model=service.spec.model.served_name or service.name,
        emulated=status.workload.emulated,
        ready=min(ready, desired),
        starting=starting,
        draining=sum(pool.draining for pool in pools),
        desired=desired,
        promises=tuple(
            Promise(
                name=f"{target.cls} {target.metric} {target.quantile}",
                observed=None if target.observed is None else brief(seconds(target.observed)),
                target=brief(seconds(target.target)),
                burn=target.burn,
            )
            for target in status.slo
        ),
        decision=status.scaling.decision,
        reason=status.scaling.reason,
        cost=status.cost.per_hour or "",
        problems=tuple(c.message for c in status.conditions if BAD_WHEN.get(c.type) == c.status),
    )


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """A line for the header and one for each row; an empty cell stays blank."""
    lines = [header, *rows]
    widths = [max(len(line[index]) for line in lines) for index in range(len(header))]
    for line in lines:
        yield "   ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


_BURN_RATE = (
    "burn rate: share of the last minute's requests that missed a promise, over the share that may miss it; "
    "above 1 the error budget will not last its window"
)


def line(row: StatusRow) -> str:
    """`default/chat  2/3 ready, 1 starting  ttft p95 412ms of 500ms  demand: 3 replicas ...`."""
    promises = []
    for promise in row.promises:
        burn = f", burn rate {promise.burn:.1f}" if promise.burn is not None else ""
        promises.append(f"{promise.name} {promise.observed or 'no data'} of {promise.target}{burn}")
    decision = f"{row.reason}: {row.decision}" if row.decision else ""
    emulated = "emulated" if row.emulated else ""
    parts = [row.name, row.replicas, emulated, *promises, decision, *row.problems]
    return "  ".join(part for part in parts if part)


def legend(rows: Iterable[StatusRow]) -> str:
    """Explain the numbers that need it; empty if none is shown."""
    return _BURN_RATE if any(promise.burn is not None for row in rows for promise in row.promises) else ""

"""What the autoscaler says in an object's status: scaling, slo, cost and its conditions. Pure.

The decision there stands until one differs from it in kind or in who is ready, or until something else is worth a
write; numbers are rounded to two figures. Conditions tell what is so now, in words without measured numbers. So a
quiet service writes nothing, and no write tells of the past. `desired` is what is wanted, also where `advise` only
says so.

`SLOMet` counts judged requests, `observed` interpolates in a histogram's bucket: near a promise they may differ, and
then the former is right.

The autoscaler's metrics of one pass over one service.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import floor, log10
from typing import Any

from pydantic import BaseModel

from paceline_autoscaler.model.estimate import burn_of
from paceline_autoscaler.policies.constraints import budget_words, cost_per_hour, why_hold, why_paused
from paceline_autoscaler.types import Decision, MissingSignal, Observation, SloCounts, SloTarget
from paceline_core.kube import ObjectKey
from paceline_core.objects.status import ServiceStatus
from paceline_core.registry import METRICS
from paceline_core.registry.enums import ReplicaState, ScaleLimit, ScaleReason
from paceline_core.registry.metrics import SERVICE
from paceline_core.telemetry import Metrics
from paceline_core.units import brief, duration

OVERDUE = 3.0
OVERDUE_LEAST_S = 60.0
REASON_LIMIT = 200

CONDITIONS = ("SLOMet", "MetricsFresh", "ScalingActive", "ScalingLimited", "CapacityBlocked", "Paused")
Status = dict[str, Any]
Turned = Mapping[str, tuple[str, str]]
"""Conditions by type: their status, and since when."""


@dataclass(frozen=True, slots=True)
class StatusInput:
    """The decision that stands, since when (RFC 3339), what it was taken from, and the latest of each.

    `starting`: since when (as `now`) each replica has been starting, be it for the first time or again. `lost`: why a
    watch is broken; `refused`: why replicas could not be set.
    """

    since: str
    decision: Decision
    latest: Decision
    observation: Observation
    quantiles: Mapping[SloTarget, float]
    starting: Mapping[str, float]
    lost: Mapping[MissingSignal, str] = field(default_factory=dict)
    refused: str = ""


def status_of(standing: StatusInput, turned: Turned, generation: int, now: str) -> Status:
    """The whole part of the status that is ours; `turned` tells since when each condition is what it was."""
    seen = standing.observation
    rows = {(row.cls, row.slo): row for row in seen.attainment.verdicts} if seen.attainment else {}
    return {
        "scaling": _scaling(standing),
        "slo": [_target(target, rows, standing.quantiles) for target in seen.goal.targets],
        "cost": {"perHour": f"{cost_per_hour(seen.goal, present(seen)):.2f}"},
        "conditions": _conditions(standing, turned, generation, now),
    }


def refused_status(before: ServiceStatus, words: str, generation: int, now: str) -> Status:
    """What stands in the object of our part, with the one condition that a right is missing to scale."""
    old = {row.type: row for row in before.conditions}
    was = old.get("ScalingActive")
    since = was.last_transition_time if was is not None and was.status == "False" else now
    row = {"type": "ScalingActive", "status": "False", "reason": "Forbidden", "message": refusal(words)}
    others = [_plain(old[kind]) for kind in CONDITIONS if kind in old and kind != "ScalingActive"]
    kept = {
        "scaling": _plain(before.scaling),
        "slo": [_plain(target) for target in before.slo],
        "cost": _plain(before.cost),
    }
    return {**kept, "conditions": [*others, {**row, "lastTransitionTime": since, "observedGeneration": generation}]}


def _plain(part: BaseModel) -> Status:
    return part.model_dump(mode="json", by_alias=True, exclude_unset=True)


def refusal(words: str) -> str:
    """The API server's own words, which begin with a resource's name."""
    return _whole(f"the API server refuses: {words}")


def _whole(words: str) -> str:
    """A message as all conditions have it: a capital first, a full stop last."""
    return f"{words[:1].upper()}{words[1:].removesuffix('.')}."


def present(seen: Observation) -> dict[str, int]:
    """Replicas that cost something: starting and draining ones too."""
    return {pool.name: len(pool.replicas) for pool in seen.pools}


def _scaling(standing: StatusInput) -> Status:
    decision, latest = standing.decision, standing.latest
    wanted = {pool.name: pool.wish if decision.reason is ScaleReason.ADVISE else pool.replicas for pool in latest.pools}
    scaling: Status = {
        "desired": sum(wanted.values()),
        "pools": [{"name": name, "desired": count} for name, count in wanted.items()],
        "promise": _promise(standing),
        "decision": decision.sentence,
        "reason": decision.reason.value,
        "limit": decision.limit.value,
        "time": standing.since,
    }
    if latest.reading.burn is not None:
        scaling["burn"] = rounded(latest.reading.burn)
    return scaling


def _promise(standing: StatusInput) -> str:
    """`ttft p95 420ms/500ms` of the target nearest to breach; `ttft p95 -/500ms` of the first before any is."""
    shares = {target: seconds / target.seconds for target, seconds in standing.quantiles.items()}
    if not shares:
        first = next(iter(standing.observation.goal.targets), None)
        return "" if first is None else f"{first.metric} p{round(first.quantile * 100)} -/{brief(first.seconds)}"
    worst = max(shares, key=lambda target: shares[target])
    quantile = f"p{round(worst.quantile * 100)}"
    return f"{worst.metric} {quantile} {brief(rounded(max(standing.quantiles[worst], 0.0)))}/{brief(worst.seconds)}"


def _target(target: SloTarget, rows: Mapping[Any, SloCounts], quantiles: Mapping[SloTarget, float]) -> Status:
    row = rows.get((target.cls, target.name))
    burn = burn_of(row) if row is not None else None
    told: Status = {
        "class": target.cls.value,
        "metric": target.metric,
        "quantile": f"p{round(target.quantile * 100)}",
        "target": duration(target.seconds),
    }
    if target in quantiles:
        told["observed"] = _time(quantiles[target])
    if burn is not None:
        told["burn"] = rounded(burn)
    return told


def _conditions(standing: StatusInput, turned: Turned, generation: int, now: str) -> list[Status]:
    facts = {
        "SLOMet": _slo_met(standing),
        "MetricsFresh": _metrics_fresh(standing),
        "ScalingActive": _scaling_active(standing),
        "ScalingLimited": _scaling_limited(standing),
        "CapacityBlocked": _capacity_blocked(standing),
        "Paused": _paused(standing),
    }
    return [
        {
            "type": kind,
            "status": said,
            "reason": reason,
            "message": _whole(message),
            "lastTransitionTime": turned[kind][1] if kind in turned and turned[kind][0] == said else now,
            "observedGeneration": generation,
        }
        for kind, (said, reason, message) in facts.items()
    ]


Fact = tuple[str, str, str]


def _slo_met(standing: StatusInput) -> Fact:
    if not standing.observation.goal.targets:
        return "Unknown", "NoTargets", "no class promises anything; write classes.interactive.slo to change that"
    burn = standing.latest.reading.burn
    if burn is not None:
        met = burn <= 1
        return ("True", "Met", "every budget lasts its window") if met else ("False", "Burning", "a budget burns")
    if MissingSignal.ATTAINMENT in standing.latest.gaps:
        return "Unknown", "NotMeasured", _unmeasured(standing)
    return "Unknown", "TooFewRequests", "too few requests were judged lately"


def _metrics_fresh(standing: StatusInput) -> Fact:
    gaps = standing.latest.gaps
    if not gaps:
        return "True", "Fresh", "gateways, workers and the metrics source are heard"
    demand = standing.observation.demand
    told = {
        MissingSignal.GATEWAYS: f"{demand.heard} of {demand.expected} gateways are heard",
        MissingSignal.ENDPOINTS: f"the list of workers is not current{_because(standing, MissingSignal.ENDPOINTS)}",
        MissingSignal.OBJECTS: f"the objects are not current{_because(standing, MissingSignal.OBJECTS)}",
        MissingSignal.LOAD: "not every ready replica tells its load",
        MissingSignal.ATTAINMENT: _unmeasured(standing),
        MissingSignal.STATE: f"the learned state is not read{_because(standing, MissingSignal.STATE)}, "
        "so nothing is stored over it",
    }
    message = ", ".join(told[gap] for gap in gaps)
    return "False", f"{gaps[0].value.capitalize()}Missing", f"{message}; nothing is scaled down meanwhile"


def _because(standing: StatusInput, gap: MissingSignal) -> str:
    return f" ({standing.lost[gap]})" if gap in standing.lost else ""


def _scaling_active(standing: StatusInput) -> Fact:
    if standing.refused:
        return "False", "Forbidden", refusal(standing.refused)
    goal = standing.observation.goal
    if why := why_hold(goal, standing.observation.now):
        return "False", why[0].value.capitalize(), why[1]
    return "True", "Scaling", f"policy {goal.policy} scales it"


def _scaling_limited(standing: StatusInput) -> Fact:
    limit, goal = standing.latest.limit, standing.observation.goal
    if limit is ScaleLimit.NONE:
        return "False", "WithinLimits", "no limit binds"
    if limit is ScaleLimit.BUDGET:
        return "True", "Budget", f"{budget_words(goal)}, which pays for fewer replicas than are wanted"
    bounds = {pool.name: pool.max if limit is ScaleLimit.MAX else pool.min for pool in goal.pools}
    at = [pool.name for pool in standing.latest.pools if pool.wish == bounds[pool.name]]
    told = ", ".join(f"{limit.value} of {name} is {bounds[name]}" for name in at)
    return "True", limit.value.capitalize(), f"{told}; {'more' if limit is ScaleLimit.MAX else 'fewer'} would be wanted"


def _capacity_blocked(standing: StatusInput) -> Fact:
    usual = standing.latest.reading.start_s
    limit = max(OVERDUE * usual, OVERDUE_LEAST_S)
    seen = standing.observation
    late = [
        replica.name
        for pool in seen.pools
        for replica in pool.replicas
        if replica.state is ReplicaState.STARTING and seen.now - standing.starting.get(replica.name, seen.now) > limit
    ]
    if not late:
        return "False", "StartsInTime", f"replicas start in about {duration(float(round(usual)))}"
    names = ", ".join(late[:3]) + (" and others" if len(late) > 3 else "")
    subject = f"replica {names} is" if len(late) == 1 else f"replicas {names} are"
    return "True", "StartsOverdue", f"{subject} not ready after {duration(float(round(limit)))}"


def _paused(standing: StatusInput) -> Fact:
    goal = standing.observation.goal
    if why := why_paused(goal.pause_until, standing.observation.now):
        return "True", "Annotation", f"{why} ({goal.pause_reason[:REASON_LIMIT]})" if goal.pause_reason else why
    return "False", "NotPaused", "scaling is not paused"


def _unmeasured(standing: StatusInput) -> str:
    """`the metrics source http://prometheus:9090 answers error (unreachable: Connection refused)`."""
    attainment = standing.observation.attainment
    if attainment is None:
        return "the metrics source has not been asked yet"
    source = f" {attainment.source}" if attainment.source else ""
    cause = f" ({attainment.cause})" if attainment.cause else ""
    return f"the metrics source{source} answers {attainment.result.value}{cause}"


def rounded(value: float, figures: int = 2) -> float:
    """To so many significant figures."""
    return round(value, figures - 1 - floor(log10(abs(value)))) if value else 0.0


def _time(seconds: float) -> str:
    return duration(rounded(max(seconds, 0.0)))


def record(metrics: Metrics, key: ObjectKey, seen: Observation, decision: Decision, elapsed_s: float) -> None:
    """Replicas, signals, the decision, and what the replicas cost in the `elapsed_s` since the last pass."""
    place = (key.namespace, key.name)
    metrics.counter("paceline_autoscaler_actuation_errors_total", *place)  # from 0: a rate misses what begins at 1
    for pool in seen.pools:
        counts = {state: pool.count(state) for state in ReplicaState} | {ReplicaState.DESIRED: pool.desired}
        for state, count in counts.items():
            metrics.gauge("paceline_autoscaler_replicas", *place, pool.name, state.value).set(count)
    reading = decision.reading
    signals = {"demand": reading.demand, "backlog": reading.backlog, "capacity": reading.capacity, "burn": reading.burn}
    for signal, value in signals.items():
        if value is not None:
            metrics.gauge("paceline_autoscaler_signal", *place, signal).set(value)
    metrics.counter(
        "paceline_autoscaler_decisions_total", *place, decision.direction.value, decision.reason.value
    ).inc()
    if decision.limit is not ScaleLimit.NONE:
        metrics.counter("paceline_autoscaler_limited_total", *place, decision.limit.value).inc()
    spent = cost_per_hour(seen.goal, present(seen)) * elapsed_s / 3600
    metrics.counter("paceline_cost_dollars_total", *place).inc(max(spent, 0.0))


def age(metrics: Metrics, key: ObjectKey, signal: str, seconds: float | None) -> None:
    """How old a signal is; a signal that was never heard has no age, and no series."""
    place = ("paceline_autoscaler_signal_age_seconds", key.namespace, key.name, signal)
    if seconds is None:
        metrics.forget(*place)
    else:
        metrics.gauge(*place).set(seconds)


def forget(metrics: Metrics, key: ObjectKey) -> None:
    """A service is gone: drop its series."""
    for row in METRICS.values():
        if row.owner == "autoscaler" and row.labels[:2] == SERVICE:
            metrics.forget(row.name, key.namespace, key.name)

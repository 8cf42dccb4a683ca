"""Build the autoscaler's part of an object's status: scaling, slo, cost and its conditions. Pure.

The published decision stays until one differs from it in kind or in ready replicas, or until something else is worth a
write; numbers are rounded to two figures. Conditions describe the present without measured numbers. So a quiet service
causes no writes, and no write describes the past. `desired` is what is wanted, even if `advise` writes no replicas.

`SLOMet` counts judged requests, `observed` interpolates in a histogram's bucket: near a target they may differ, and
then the former is right.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import floor, log10
from typing import Any

from pydantic import BaseModel

from paceline_autoscaler.model.burn import burn_of
from paceline_autoscaler.model.capacity import mix_of
from paceline_autoscaler.model.starts import blocked_pools
from paceline_autoscaler.output.feasibility import Fact, slo_feasible
from paceline_autoscaler.policies.constraints import budget_words, cost_per_hour, why_hold, why_paused
from paceline_autoscaler.state import LearnedState
from paceline_autoscaler.types import Decision, MissingSignal, Observation, SloCounts, SloTarget
from paceline_core.clock import rfc3339
from paceline_core.objects import InferenceService
from paceline_core.objects.status import ServiceStatus
from paceline_core.registry.enums import ScaleLimit, ScaleReason
from paceline_core.units import brief, duration

REASON_LIMIT = 200

CONDITIONS = ("SLOMet", "SLOFeasible", "MetricsFresh", "ScalingActive", "ScalingLimited", "CapacityBlocked", "Paused")
Status = dict[str, Any]
Transitions = Mapping[str, tuple[str, str]]
"""Conditions by type: their status, and its last transition time."""


@dataclass(frozen=True, slots=True)
class StatusInput:
    """The published decision, since when (RFC 3339), the latest decision and its observation.

    `learned`: by then, of the service. `lost`: why a watch is broken; `forbidden`: why the API server refused to set
    replicas.
    """

    since: str
    decision: Decision
    latest: Decision
    observation: Observation
    learned: LearnedState
    lost: Mapping[MissingSignal, str] = field(default_factory=dict)
    forbidden: str = ""


def status_of(source: StatusInput, transitions: Transitions, generation: int, now: str) -> Status:
    """The autoscaler's whole part of the status; `transitions` holds each condition's last change."""
    observation = source.observation
    rows = {(row.cls, row.slo): row for row in observation.attainment.verdicts} if observation.attainment else {}
    return {
        "scaling": _scaling(source),
        "slo": [_target(target, rows, source) for target in observation.goal.targets],
        "cost": {"perHour": f"{cost_per_hour(observation.goal, observation.present):.2f}"},
        "conditions": _conditions(source, transitions, generation, now),
    }


def forbidden_status(before: ServiceStatus, error: str, generation: int, now: str) -> Status:
    """The autoscaler's part as the object has it, plus the condition that a right needed to scale is missing."""
    old = {row.type: row for row in before.conditions}
    was = old.get("ScalingActive")
    since = was.last_transition_time if was is not None and was.status == "False" else now
    row = {"type": "ScalingActive", "status": "False", "reason": "Forbidden", "message": forbidden_message(error)}
    others = [_plain(old[kind]) for kind in CONDITIONS if kind in old and kind != "ScalingActive"]
    written = {
        "scaling": _plain(before.scaling),
        "slo": [_plain(target) for target in before.slo],
        "cost": _plain(before.cost),
    }
    return {**written, "conditions": [*others, {**row, "lastTransitionTime": since, "observedGeneration": generation}]}


def _plain(part: BaseModel) -> Status:
    return part.model_dump(mode="json", by_alias=True, exclude_unset=True)


def forbidden_message(error: str) -> str:
    """The API server's own error, which begins with a resource's name."""
    return sentence(f"the API server refuses: {error}")


def yielded_to(service: InferenceService) -> str:
    """The `other_scaler` that an earlier process wrote into the status, if it is about this generation; else empty."""
    for row in service.status.conditions:
        if row.type == "ScalingActive" and row.reason == "ScalerConflict":
            current = row.observed_generation == service.metadata.generation
            scaler = row.message.partition(";")[0]
            return f"{scaler[:1].lower()}{scaler[1:]}" if current else ""
    return ""


def sentence(text: str) -> str:
    """Begins with a capital and ends with a full stop, as in every condition."""
    return f"{text[:1].upper()}{text[1:].removesuffix('.')}."


def _scaling(source: StatusInput) -> Status:
    decision, latest = source.decision, source.latest
    wanted = {pool.name: pool.wish if decision.reason is ScaleReason.ADVISE else pool.replicas for pool in latest.pools}
    scaling: Status = {
        "desired": sum(wanted.values()),
        "pools": [{"name": name, "desired": count} for name, count in wanted.items()],
        "promise": _promise(source),
        "decision": decision.sentence,
        "reason": decision.reason.value,
        "limit": decision.limit.value,
        "time": source.since,
    }
    if latest.reading.burn is not None:
        scaling["burn"] = rounded(latest.reading.burn)
    return scaling


def _promise(source: StatusInput) -> str:
    """`ttft p95 420ms/500ms` of the target nearest to breach; `ttft p95 -/500ms` of the first before any is."""
    quantiles = _quantiles(source)
    shares = {target: seconds / _limit(target, source) for target, seconds in quantiles.items()}
    if not shares:
        first = next(iter(source.observation.goal.targets), None)
        return (
            "" if first is None else f"{first.metric} p{round(first.quantile * 100)} -/{brief(_limit(first, source))}"
        )
    worst = max(shares, key=lambda target: shares[target])
    quantile = f"p{round(worst.quantile * 100)}"
    observed = brief(rounded(max(quantiles[worst], 0.0)))
    return f"{worst.metric} {quantile} {observed}/{brief(_limit(worst, source))}"


def _quantiles(source: StatusInput) -> dict[SloTarget, float]:
    """The measured seconds of each target's quantile, where known."""
    measured = {(each.cls, each.metric, each.quantile): each.seconds for each in source.observation.latencies}
    keys = {target: (target.cls, target.metric, target.quantile) for target in source.observation.goal.targets}
    return {target: measured[key] for target, key in keys.items() if key in measured}


def _limit(target: SloTarget, source: StatusInput) -> float:
    """The target's limit for a prompt of its class's mean length."""
    if not target.per_prompt_token:
        return target.seconds
    classes = [cls for cls in source.observation.demand.classes if cls.name is target.cls]
    return rounded(target.limit(mix_of(classes, None).prompt_tokens))


def _target(target: SloTarget, rows: Mapping[Any, SloCounts], source: StatusInput) -> Status:
    row = rows.get((target.cls, target.name))
    burn = burn_of(row) if row is not None else None
    slo: Status = {
        "class": target.cls.value,
        "metric": target.metric,
        "quantile": f"p{round(target.quantile * 100)}",
        "target": duration(_limit(target, source)),
    }
    if (seconds := _quantiles(source).get(target)) is not None:
        slo["observed"] = duration(rounded(max(seconds, 0.0)))
    if burn is not None:
        slo["burn"] = rounded(burn)
    return slo


def _conditions(source: StatusInput, transitions: Transitions, generation: int, now: str) -> list[Status]:
    goal = source.observation.goal
    paused: Fact = ("False", "NotPaused", "scaling is not paused")
    if why := why_paused(goal.pause_until, source.observation.now):
        reason = f" ({goal.pause_reason[:REASON_LIMIT]})" if goal.pause_reason else ""
        paused = ("True", "Annotation", f"{why}{reason}")
    facts = {
        "SLOMet": _slo_met(source),
        "SLOFeasible": slo_feasible(goal, source.learned),
        "MetricsFresh": _metrics_fresh(source),
        "ScalingActive": _scaling_active(source),
        "ScalingLimited": _scaling_limited(source),
        "CapacityBlocked": _capacity_blocked(source),
        "Paused": paused,
    }
    return [
        {
            "type": kind,
            "status": state,
            "reason": reason,
            "message": sentence(message),
            "lastTransitionTime": transitions[kind][1]
            if kind in transitions and transitions[kind][0] == state
            else now,
            "observedGeneration": generation,
        }
        for kind, (state, reason, message) in facts.items()
    ]


def _slo_met(source: StatusInput) -> Fact:
    if not source.observation.goal.targets:
        return "Unknown", "NoTargets", "no class has a target; set classes.interactive.slo"
    burn = source.latest.reading.burn
    if burn is not None:
        met = burn <= 1
        return (
            ("True", "Met", "no error budget burns too fast") if met else ("False", "Burning", "an error budget burns")
        )
    if MissingSignal.ATTAINMENT in source.latest.gaps:
        return "Unknown", "NotMeasured", _unmeasured(source)
    return "Unknown", "TooFewRequests", "too few recent requests to judge"


def _metrics_fresh(source: StatusInput) -> Fact:
    gaps = source.latest.gaps
    if not gaps:
        return "True", "Fresh", "gateways, workers and the metrics source report"
    demand = source.observation.demand
    why = {signal: f" ({source.lost[signal]})" if signal in source.lost else "" for signal in MissingSignal}
    problems = {
        MissingSignal.GATEWAYS: f"{demand.heard} of {demand.expected} gateways report",
        MissingSignal.ENDPOINTS: f"the list of workers is stale{why[MissingSignal.ENDPOINTS]}",
        MissingSignal.OBJECTS: f"the objects are stale{why[MissingSignal.OBJECTS]}",
        MissingSignal.LOAD: "not every ready replica reports its load",
        MissingSignal.ATTAINMENT: _unmeasured(source),
        MissingSignal.STATE: f"the learned state is not readable{why[MissingSignal.STATE]}, "
        "so nothing is stored over it",
    }
    message = ", ".join(problems[signal] for signal in gaps)
    return "False", f"{gaps[0].value.capitalize()}Missing", f"{message}; nothing is scaled down meanwhile"


def _scaling_active(source: StatusInput) -> Fact:
    if source.forbidden:
        return "False", "Forbidden", forbidden_message(source.forbidden)
    goal = source.observation.goal
    if why := why_hold(goal, source.observation.now, source.observation.other_scaler):
        return "False", why[0].value.title().replace("_", ""), why[1]
    return "True", "Scaling", f"policy {goal.policy} scales it"


def _scaling_limited(source: StatusInput) -> Fact:
    limit, goal = source.latest.limit, source.observation.goal
    if limit is ScaleLimit.NONE:
        return "False", "WithinLimits", "no limit binds"
    if limit is ScaleLimit.CAPACITY:
        return "True", "Capacity", "no pool with capacity has room for the replicas that are wanted"
    if limit is ScaleLimit.BUDGET:
        return "True", "Budget", f"{budget_words(goal)}, which pays for fewer replicas than wanted"
    bounds = {pool.name: pool.max if limit is ScaleLimit.MAX else pool.min for pool in goal.pools}
    at = [pool.name for pool in source.latest.pools if pool.wish == bounds[pool.name]]
    bounds_at = ", ".join(f"{limit.value} of {name} is {bounds[name]}" for name in at)
    return (
        "True",
        limit.value.capitalize(),
        f"{bounds_at}; {'more' if limit is ScaleLimit.MAX else 'fewer'} replicas are wanted",
    )


def _capacity_blocked(source: StatusInput) -> Fact:
    blocked = blocked_pools(source.learned, source.observation.now)
    if not blocked:
        usual = source.latest.reading.start_s
        return "False", "StartsInTime", f"replicas start in about {duration(float(round(usual)))}"
    tried = {name: rfc3339(datetime.fromtimestamp(round(block.until), UTC)) for name, block in blocked.items()}
    pools = (f"pool {name}: {block.why}, tried again at {tried[name]}" for name, block in blocked.items())
    return "True", "StartsOverdue", "; ".join(pools)


def _unmeasured(source: StatusInput) -> str:
    """`the metrics source http://prometheus:9090 answers error (unreachable: Connection refused)`."""
    attainment = source.observation.attainment
    if attainment is None:
        return "the metrics source has not been asked yet"
    address = f" {attainment.source}" if attainment.source else ""
    cause = f" ({attainment.cause})" if attainment.cause else ""
    return f"the metrics source{address} answers {attainment.result.value}{cause}"


_MEASURED = ("promise", "burn", "observed")


def without_values(status: Status) -> Status:
    """The status without its measured numbers, which change with every pass and do not justify a write at once."""
    scaling = {name: value for name, value in status["scaling"].items() if name not in _MEASURED}
    slo = [{name: value for name, value in target.items() if name not in _MEASURED} for target in status["slo"]]
    return {**status, "scaling": scaling, "slo": slo}


def measured_values(status: Status) -> dict[tuple[int, str], Any]:
    """The measured numbers, as published; a promise without a measured value has none."""
    parts = [status["scaling"], *status["slo"]]
    values = {(place, name): part[name] for place, part in enumerate(parts) for name in _MEASURED if name in part}
    return {place: value for place, value in values.items() if not (isinstance(value, str) and " -/" in value)}


def rounded(value: float, figures: int = 2) -> float:
    return round(value, figures - 1 - floor(log10(abs(value)))) if value else 0.0

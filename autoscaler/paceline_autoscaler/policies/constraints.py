"""Constrain a recommendation to what is allowed, and turn it into a decision. Pure.

Each constraint takes the previous recommendation and returns it, changed or not: nothing is removed while a signal is
missing, work is backlogged or a replica drains; pools without capacity get no orders; then come the user's bounds and
budget; last a pause, `advise`, an external scaler, or another writer of the replicas to which the autoscaler yields.
Bounds, budget and `fixed` may always remove replicas: they are the user's orders, not conclusions from signals.

A pause annotation that is not a time also pauses, because a pause was intended. The example in its message changes once
an hour, so that a status may contain the message.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from math import fsum

from paceline_autoscaler.model.estimate import WorkEstimate
from paceline_autoscaler.policies.blocked_pools import avoid_blocked_pools
from paceline_autoscaler.types import (
    Decision,
    MissingSignal,
    PoolDecision,
    Recommendation,
    ScalingSpec,
    SignalValues,
)
from paceline_core.clock import rfc3339
from paceline_core.objects.naming import ANNOTATION_PAUSE_UNTIL
from paceline_core.registry.enums import Direction, ReplicaState, ScaleLimit, ScaleReason
from paceline_core.units import counted

HOUR_S = 3600
_MISSING = {
    MissingSignal.GATEWAYS: "not every gateway reports",
    MissingSignal.ENDPOINTS: "the list of workers is stale",
    MissingSignal.OBJECTS: "the objects are stale",
    MissingSignal.ATTAINMENT: "SLO attainment is not measured",
    MissingSignal.STATE: "the learned state is not readable",
}


def why_paused(annotation: str | None, now: float) -> str | None:
    """Why nothing may be scaled at `now` (Unix seconds), or None."""
    if annotation is None:
        return None
    try:
        until = datetime.fromisoformat(annotation)
    except ValueError:
        until = None
    if until is None or until.tzinfo is None:
        example = rfc3339(datetime.fromtimestamp((now // HOUR_S + 1) * HOUR_S, UTC))
        problem = f"annotation {ANNOTATION_PAUSE_UNTIL} is {annotation[:40]!r}, which is not a time"
        return f"{problem}; write it like {example} or remove it"
    return f"paused until {rfc3339(until)}" if now < until.timestamp() else None


def constrain(work: WorkEstimate, recommendation: Recommendation) -> Decision:
    """Apply every constraint in turn; the result is the decision."""
    placed = avoid_blocked_pools(work, block_scale_down(work, recommendation))
    allowed = fit_budget(work, clamp_to_bounds(work, placed))
    final = hold_replicas(work, allowed)
    current = work.ordered
    pools = tuple(
        PoolDecision(name, current[name], allowed.counts[name], final.counts[name]) for name in sorted(current)
    )
    fell = any(pool.replicas < pool.current for pool in pools)
    rose = any(pool.replicas > pool.current for pool in pools)
    return Decision(
        pools=pools,
        direction=Direction.UP if rose else Direction.DOWN if fell else Direction.HOLD,
        reason=final.reason,
        limit=final.limit,
        sentence=f"{_move(sum(current.values()), final.total)}: {final.body}{_edited(work)}",
        rejected=final.rejected,
        gaps=work.missing,
        reading=SignalValues(
            demand=max((group.demand for group in work.groups), default=0.0),
            backlog=max((group.backlog for group in work.groups), default=0.0),
            capacity=final.capacity,
            burn=work.burn,
            start_s=work.start_s,
            drain_s=work.drain_s,
            forecast=work.forecast,
        ),
        deferred=final.deferred,
    )


def _edited(work: WorkEstimate) -> str:
    """What another writer did lately; not repeated where the autoscaler yields to it."""
    seen = work.observation
    return f"; {seen.recent_edit}" if seen.recent_edit and not seen.other_scaler else ""


def block_scale_down(work: WorkEstimate, wanted: Recommendation) -> Recommendation:
    """Keep replicas from removal: all of them for one of `_why_keep`, those of one pool while it is unreported."""
    current = work.ordered
    kept = {name: max(count, current[name]) for name, count in wanted.counts.items()}
    if kept == dict(wanted.counts) or work.spec.policy == "fixed":
        return wanted
    found = _why_keep(work)
    if found is None:
        blind = sorted(name for name in work.unreported if kept[name] > wanted.counts[name])
        if not blind:
            return wanted
        kept = {**wanted.counts, **{name: kept[name] for name in blind}}
        found = ScaleReason.MISSING_DATA, f"not every ready replica of {' and '.join(blind)} reports its load"
    reason, why = found
    otherwise = f"otherwise {_move(sum(current.values()), wanted.total)}: {wanted.body}"
    return replace(wanted, counts=kept, reason=reason, body=f"{why}; {otherwise}")


def _why_keep(work: WorkEstimate) -> tuple[ScaleReason, str] | None:
    """Why no pool may lose a replica: a signal is missing, work waits, or a replica drains."""
    missing = [_MISSING[signal] for signal in work.missing if signal is not MissingSignal.LOAD]
    if missing:
        return ScaleReason.MISSING_DATA, ", ".join(missing)
    if work.backlogged:
        return ScaleReason.BACKLOG, "requests are waiting"
    there = (ReplicaState.READY, ReplicaState.STARTING)
    if any(
        pool.count(ReplicaState.DRAINING) or sum(pool.count(state) for state in there) > pool.desired
        for pool in work.observation.pools
    ):  # a replica drains, or more exist than are ordered: the last scale-down is not complete
        return ScaleReason.COOLDOWN, "a replica is still draining"
    return None


def clamp_to_bounds(work: WorkEstimate, wanted: Recommendation) -> Recommendation:
    pools = work.spec.pools
    inside = {pool.name: min(max(wanted.counts[pool.name], pool.min), pool.max) for pool in pools}
    capped = [pool for pool in pools if inside[pool.name] < wanted.counts[pool.name]]
    raised = [pool for pool in pools if inside[pool.name] > wanted.counts[pool.name]]
    if capped:
        why = ", ".join(f"max of {pool.name} is {pool.max}" for pool in capped)
        return _limited(work, wanted, inside, ScaleLimit.MAX, why)
    if raised:
        why = ", ".join(f"min of {pool.name} is {pool.min}" for pool in raised)
        return _limited(work, wanted, inside, ScaleLimit.MIN, why)
    return wanted


def fit_budget(work: WorkEstimate, wanted: Recommendation) -> Recommendation:
    """As many of the replicas as the budget allows; a pool keeps its minimum even beyond the budget.

    Replicas that exist beside the ordered ones (draining, a rollout's surge, a canary) cost until they are gone.
    """
    paid = deal_replicas(work.spec, wanted.counts)
    now = _affordable_now(work, paid)
    if now == dict(wanted.counts):
        return wanted
    why = budget_words(work.spec)
    leaving = sum(_beside(work).values())
    if now != paid and leaving:
        why = f"{why}, and {counted(leaving, 'more replica')} still {'exists' if leaving == 1 else 'exist'}"
    return _limited(work, wanted, now, ScaleLimit.BUDGET, why)


def _affordable_now(work: WorkEstimate, counts: Mapping[str, int]) -> dict[str, int]:
    """These counts without the growth that the budget cannot pay beside all that exists at this moment."""
    now, ordered, beside = dict(counts), work.ordered, _beside(work)
    minima = {pool.name: pool.min for pool in work.spec.pools}
    payable = _within_budget(work.spec, minima)
    for pool in reversed(work.spec.pools):
        least = ordered[pool.name] if payable else max(ordered[pool.name], min(pool.min, counts[pool.name]))
        while now[pool.name] > least:
            exist = {name: max(count, ordered[name]) + beside[name] for name, count in now.items()}
            if _within_budget(work.spec, exist):
                return now
            now[pool.name] -= 1
    return now


def _beside(work: WorkEstimate) -> dict[str, int]:
    """Existing replicas beyond those ordered, by pool."""
    present = work.observation.present
    return {name: max(present[name] - count, 0) for name, count in work.ordered.items()}


def hold_replicas(work: WorkEstimate, wanted: Recommendation) -> Recommendation:
    """Write nothing during a pause, for an unmanaged Deployment, in `advise` mode, or where someone else scales."""
    hold = why_hold(work.spec, work.observation.now, work.observation.other_scaler)
    if hold is None:
        return wanted
    current, (reason, why) = work.ordered, hold
    held = replace(wanted, counts=current, reason=reason, body=why)
    if dict(wanted.counts) == current:
        return held
    saving = cost_per_hour(work.spec, current) - cost_per_hour(work.spec, wanted.counts)
    saved = f" and save ${saving:.2f} an hour" if saving > 0 else ""
    return replace(held, body=f"{why}; would go {_move(held.total, wanted.total)}{saved}: {wanted.body}")


def why_hold(spec: ScalingSpec, now: float, other_scaler: str = "") -> tuple[ScaleReason, str] | None:
    """Why nothing is written, in words without measured numbers; None if nothing holds the service.

    `other_scaler` is that of an observation.
    """
    if why := why_paused(spec.pause_until, now):
        return ScaleReason.PAUSED, why
    if spec.foreign is not None:
        return (
            ScaleReason.EXTERNAL,
            f"Deployment {spec.foreign} is not scaled: its replicas report no step times",
        )
    if spec.policy == "external":
        return ScaleReason.EXTERNAL, "policy external leaves the Deployments to an HPA or KEDA"
    if spec.policy == "advise":
        return ScaleReason.ADVISE, "policy advise writes nothing"
    if other_scaler:
        return ScaleReason.SCALER_CONFLICT, f"{other_scaler}; stop it or set scaling.policy: external"
    return None


def deal_replicas(spec: ScalingSpec, counts: Mapping[str, int]) -> dict[str, int]:
    """Distribute the wanted replicas over the pools in turn, minima first, within the budget."""
    if spec.budget_gpus is None and spec.budget_dollars_per_hour is None:
        return dict(counts)
    paid = {pool.name: min(pool.min, counts[pool.name]) for pool in spec.pools}
    unserved = [pool.name for pool in spec.pools if paid[pool.name] < counts[pool.name]]
    while unserved:
        for name in list(unserved):
            more = {**paid, name: paid[name] + 1}
            if paid[name] >= counts[name] or not _within_budget(spec, more):
                unserved.remove(name)
            else:
                paid = more
    return paid


def _within_budget(spec: ScalingSpec, counts: Mapping[str, int]) -> bool:
    gpus = sum(counts[pool.name] * pool.gpus for pool in spec.pools)
    if spec.budget_gpus is not None and gpus > spec.budget_gpus:
        return False
    return spec.budget_dollars_per_hour is None or cost_per_hour(spec, counts) <= spec.budget_dollars_per_hour + 1e-9


def cost_per_hour(spec: ScalingSpec, counts: Mapping[str, int]) -> float:
    """Dollars an hour of these many replicas."""
    return fsum(counts[pool.name] * pool.dollars_per_hour for pool in spec.pools)


def _limited(
    work: WorkEstimate, wanted: Recommendation, counts: Mapping[str, int], limit: ScaleLimit, why: str
) -> Recommendation:
    """Apply a limit; the policy's reason stays if the limit only shortens the policy's own move."""
    current, total = sum(work.ordered.values()), sum(counts.values())
    move = wanted.total - current
    same_way = move != 0 and move * (total - current) >= 0
    reason = wanted.reason if same_way else ScaleReason.BOUNDS
    return replace(wanted, counts=counts, reason=reason, body=f"{wanted.body}; {why}", limit=limit)


def _move(current: int, final: int) -> str:
    return f"holds {final}" if final == current else f"{current}→{final}"


def budget_words(spec: ScalingSpec) -> str:
    gpus = [] if spec.budget_gpus is None else [f"{spec.budget_gpus} GPUs"]
    money = [] if spec.budget_dollars_per_hour is None else [f"${spec.budget_dollars_per_hour:.2f} an hour"]
    return f"the budget is {' and '.join(gpus + money)}"

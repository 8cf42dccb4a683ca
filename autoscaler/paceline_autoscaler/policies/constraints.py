"""What no policy may override: nothing is removed on missing data or under a backlog, one drain at a time, the user's
bounds and budget, a pause. Pure: a chain of guards, each handing on the ruling of the one before, changed or not.

Only the user's own words (bounds, budget, `fixed`) remove capacity against the veto: they are orders, not conclusions.

The annotation `paceline.dev/pause-until`: until that time nothing is scaled. Pure.

A text that is no time pauses too, since a pause was meant, and the message says how to mend it; its example changes
once an hour, so that the message may stand in a status.

A rule made into a policy: learn, let the rule propose, wake or idle, then let the guards judge.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from paceline_autoscaler.model.estimate import WorkEstimate, estimate
from paceline_autoscaler.model.history import learn
from paceline_autoscaler.policies.base import Proposal, ScalingRule
from paceline_autoscaler.types import (
    Decision,
    LearnedState,
    MissingSignal,
    Observation,
    PoolDecision,
    ScalingSpec,
    SignalValues,
)
from paceline_core.clock import rfc3339
from paceline_core.objects.naming import ANNOTATION_PAUSE_UNTIL
from paceline_core.registry.enums import Direction, ReplicaState, ScaleLimit, ScaleReason
from paceline_core.units import counted

HOUR_S = 3600


def why_paused(annotation: str | None, now: float) -> str | None:
    """Why nothing may be scaled at `now` (Unix seconds), or None."""
    if annotation is None:
        return None
    until = _time(annotation)
    if until is None:
        example = rfc3339(datetime.fromtimestamp((now // HOUR_S + 1) * HOUR_S, UTC))
        told = f"annotation {ANNOTATION_PAUSE_UNTIL} is {annotation[:40]!r}, which is no time"
        return f"{told}; write it like {example} or remove it"
    return f"paused until {rfc3339(until)}" if now < until.timestamp() else None


def _time(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else None


_MISSING = {
    MissingSignal.GATEWAYS: "not every gateway is heard",
    MissingSignal.ENDPOINTS: "the list of workers is not current",
    MissingSignal.OBJECTS: "the objects are not current",
    MissingSignal.LOAD: "not every ready replica tells its load",
    MissingSignal.ATTAINMENT: "the promise is not measured",
    MissingSignal.STATE: "the learned state is not read",
}


@dataclass(frozen=True, slots=True)
class Recommendation:
    """Replicas per pool so far, and the words for it."""

    counts: Mapping[str, int]
    reason: ScaleReason
    body: str
    limit: ScaleLimit = ScaleLimit.NONE

    @property
    def total(self) -> int:
        """Replicas over all pools."""
        return sum(self.counts.values())


def constrain(picture: WorkEstimate, proposal: Proposal) -> Decision:
    """Every guard in turn, then the decision."""
    wished = Recommendation(proposal.wishes, proposal.reason, proposal.body)
    allowed = fit_budget(picture, clamp_to_bounds(picture, block_scale_down(picture, wished)))
    final = hold_replicas(picture, allowed)
    current = picture.ordered
    pools = tuple(
        PoolDecision(name, current[name], allowed.counts[name], final.counts[name]) for name in sorted(current)
    )
    return Decision(
        pools=pools,
        direction=_direction(pools),
        reason=final.reason,
        limit=final.limit,
        sentence=f"{_move(sum(current.values()), final.total)}: {final.body}",
        rejected=proposal.rejected,
        gaps=picture.gaps,
        reading=_reading(picture, proposal),
    )


def block_scale_down(picture: WorkEstimate, ruling: Recommendation) -> Recommendation:
    """Keep what would be removed while the picture is incomplete, work is waiting, or a drain is under way."""
    current = picture.ordered
    kept = {name: max(count, current[name]) for name, count in ruling.counts.items()}
    if kept == dict(ruling.counts) or picture.goal.policy == "fixed":
        return ruling
    else_ = f"else {_move(sum(current.values()), ruling.total)}: {ruling.body}"
    if picture.gaps:
        why = ", ".join(_MISSING[gap] for gap in picture.gaps)
        return Recommendation(kept, ScaleReason.MISSING_DATA, f"{why}; {else_}")
    if picture.backlogged:
        return Recommendation(kept, ScaleReason.BACKLOG, f"requests are waiting; {else_}")
    if _unsettled(picture):
        return Recommendation(kept, ScaleReason.COOLDOWN, f"a replica is still leaving; {else_}")
    return ruling


def clamp_to_bounds(picture: WorkEstimate, ruling: Recommendation) -> Recommendation:
    """Each pool's minimum and maximum."""
    pools = picture.goal.pools
    inside = {pool.name: min(max(ruling.counts[pool.name], pool.min), pool.max) for pool in pools}
    cut = [pool for pool in pools if inside[pool.name] < ruling.counts[pool.name]]
    raised = [pool for pool in pools if inside[pool.name] > ruling.counts[pool.name]]
    if cut:
        why = ", ".join(f"max of {pool.name} is {pool.max}" for pool in cut)
        return _ordered(picture, ruling, inside, ScaleLimit.MAX, why)
    if raised:
        why = ", ".join(f"min of {pool.name} is {pool.min}" for pool in raised)
        return _ordered(picture, ruling, inside, ScaleLimit.MIN, why)
    return ruling


def fit_budget(picture: WorkEstimate, ruling: Recommendation) -> Recommendation:
    """As many of the replicas as the budget pays for; a pool's minimum is kept even where it cannot pay."""
    paid = deal_replicas(picture.goal, ruling.counts)
    if paid == dict(ruling.counts):
        return ruling
    return _ordered(picture, ruling, paid, ScaleLimit.BUDGET, budget_words(picture.goal))


def hold_replicas(picture: WorkEstimate, ruling: Recommendation) -> Recommendation:
    """A pause, a Deployment that is not ours, another scaler, or advice alone: nothing is written."""
    why = why_hold(picture.goal, picture.observation.now)
    if why is None:
        return ruling
    current, (reason, told) = picture.ordered, why
    counted = Recommendation(current, reason, told, ruling.limit)
    if dict(ruling.counts) == current:
        return counted
    saving = cost_per_hour(picture.goal, current) - cost_per_hour(picture.goal, ruling.counts)
    saved = f" and save ${saving:.2f} an hour" if saving > 0 else ""
    return replace(counted, body=f"{told}; would go {_move(counted.total, ruling.total)}{saved}: {ruling.body}")


def why_hold(goal: ScalingSpec, now: float) -> tuple[ScaleReason, str] | None:
    """Whose word it is that nothing is written, in words without measured numbers; None if nobody says so."""
    if why := why_paused(goal.pause_until, now):
        return ScaleReason.PAUSED, why
    if goal.foreign is not None:
        return (
            ScaleReason.EXTERNAL,
            f"Deployment {goal.foreign} is not scaled: its replicas do not tell how fast they are",
        )
    if goal.policy == "external":
        return ScaleReason.EXTERNAL, "policy external leaves the Deployments to an HPA or KEDA"
    if goal.policy == "advise":
        return ScaleReason.ADVISE, "policy advise writes nothing"
    return None


def deal_replicas(goal: ScalingSpec, counts: Mapping[str, int]) -> dict[str, int]:
    """Deal the wished replicas to the pools in turn, minima first, while the budget lasts."""
    if goal.budget_gpus is None and goal.budget_dollars_per_hour is None:
        return dict(counts)
    paid = {pool.name: min(pool.min, counts[pool.name]) for pool in goal.pools}
    unserved = [pool.name for pool in goal.pools if paid[pool.name] < counts[pool.name]]
    while unserved:
        for name in list(unserved):
            more = {**paid, name: paid[name] + 1}
            if paid[name] >= counts[name] or not _within(goal, more):
                unserved.remove(name)
            else:
                paid = more
    return paid


def cost_per_hour(goal: ScalingSpec, counts: Mapping[str, int]) -> float:
    """Dollars an hour of these many replicas."""
    return sum(counts[pool.name] * pool.dollars_per_hour for pool in goal.pools)


def _ordered(
    picture: WorkEstimate, ruling: Recommendation, counts: Mapping[str, int], limit: ScaleLimit, why: str
) -> Recommendation:
    """The user's order; the reason stays the policy's where the order only shortens the policy's own move."""
    current, total = sum(picture.ordered.values()), sum(counts.values())
    wished = ruling.total - current
    same_way = wished != 0 and wished * (total - current) >= 0
    return Recommendation(counts, ruling.reason if same_way else ScaleReason.BOUNDS, f"{ruling.body}; {why}", limit)


def _move(current: int, final: int) -> str:
    return f"holds {final}" if final == current else f"{current}→{final}"


def _direction(pools: tuple[PoolDecision, ...]) -> Direction:
    if any(pool.replicas > pool.current for pool in pools):
        return Direction.UP
    return Direction.DOWN if any(pool.replicas < pool.current for pool in pools) else Direction.HOLD


def _reading(picture: WorkEstimate, proposal: Proposal) -> SignalValues:
    return SignalValues(
        demand=max((group.demand for group in picture.groups), default=0.0),
        backlog=max((group.backlog for group in picture.groups), default=0.0),
        capacity=proposal.capacity,
        burn=picture.burn,
        start_s=picture.start_s,
        drain_s=picture.drain_s,
    )


def _unsettled(picture: WorkEstimate) -> bool:
    """Somebody is leaving, or more are there than ordered: the last scale-down has not been carried out yet."""
    there = (ReplicaState.READY, ReplicaState.STARTING)
    return any(
        view.count(ReplicaState.DRAINING) or sum(view.count(state) for state in there) > view.desired
        for view in picture.observation.pools
    )


def _within(goal: ScalingSpec, counts: Mapping[str, int]) -> bool:
    gpus = sum(counts[pool.name] * pool.gpus for pool in goal.pools)
    if goal.budget_gpus is not None and gpus > goal.budget_gpus:
        return False
    return goal.budget_dollars_per_hour is None or cost_per_hour(goal, counts) <= goal.budget_dollars_per_hour + 1e-9


def budget_words(goal: ScalingSpec) -> str:
    """What may be spent."""
    gpus = [] if goal.budget_gpus is None else [f"{goal.budget_gpus} GPUs"]
    money = [] if goal.budget_dollars_per_hour is None else [f"${goal.budget_dollars_per_hour:.2f} an hour"]
    return f"the budget is {' and '.join(gpus + money)}"


@dataclass(frozen=True, slots=True)
class ConstrainedPolicy:
    """The policy around a rule."""

    rule: ScalingRule

    def decide(self, observation: Observation, state: LearnedState) -> tuple[Decision, LearnedState]:
        """What to do, and what to remember."""
        state = learn(observation, state)
        picture = estimate(observation, state)
        proposal, state = self.rule.propose(picture, state)
        return constrain(picture, _wake(picture, _idle(picture, proposal))), state


def _idle(picture: WorkEstimate, proposal: Proposal) -> Proposal:
    """Nobody has asked for as long as the user set: everything goes at once, for the last replica needs no rest."""
    after = picture.goal.idle_after_s
    if after is None or picture.idle_s < after or any(pool.min for pool in picture.goal.pools):
        return proposal
    body = f"nobody has asked for {picture.idle_s:.0f} s (scaleToZero.after is {after:.0f} s)"
    return replace(proposal, wishes=dict.fromkeys(proposal.wishes, 0), reason=ScaleReason.SCALE_TO_ZERO, body=body)


def _wake(picture: WorkEstimate, proposal: Proposal) -> Proposal:
    """From zero there is one way: a request wakes one replica of each role, or as many as the rule wants."""
    wishes = dict(proposal.wishes)
    asleep = [group for group in picture.groups if group.desired == 0]
    if not asleep or not _asked(picture):
        return proposal
    for group in asleep:
        first = group.columns[0].goal.name
        if not any(wishes[column.goal.name] for column in group.columns):
            wishes[first] = 1
    held = sum(max(cls.held, cls.queued) for cls in picture.observation.demand.classes)
    body = f"{counted(held, 'request')} waiting for the first replica" if held else "requests arrive, and nothing runs"
    return replace(proposal, wishes=wishes, reason=ScaleReason.SCALE_FROM_ZERO, body=body)


def _asked(picture: WorkEstimate) -> bool:
    classes = picture.observation.demand.classes
    return any(cls.held or cls.queued or (cls.flows and cls.flows[0].arrivals > 0) for cls in classes)

"""The pure parts of a decision: `estimate` → `recommend` → `constrain`, on the controller's observation.

All policies share learning, scale to and from zero, and the constraints; they differ in their rule. `decide` also
replays the ledger, and a simulator can call it: the same input gives the same output, bit for bit.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

from paceline_autoscaler.model.estimate import RoleEstimate, WorkEstimate, estimate
from paceline_autoscaler.model.history import learn
from paceline_autoscaler.policies.constraints import constrain
from paceline_autoscaler.policies.slo import SloPolicy
from paceline_autoscaler.policies.target_tracking import Fixed, TargetTracking, kv_pages, open_requests, waiting
from paceline_autoscaler.state import Knowledge, PolicyState, State
from paceline_autoscaler.types import Decision, Observation, PolicyName, Recommendation
from paceline_core.registry.enums import ScaleReason
from paceline_core.units import counted


class ScalingPolicy(Protocol):
    """A policy's own rule for the pools of one role; learning, scale to zero and constraints are common to all.

    `state_type` is the dataclass of what it remembers; it begins with its defaults.
    """

    @property
    def state_type(self) -> type[Any]: ...

    def recommend(self, group: RoleEstimate, work: WorkEstimate, own: Any) -> tuple[Recommendation, Any]:
        """This policy's recommendation, and what to remember."""
        ...


_PRECEDENCE = {
    ScaleReason.DEMAND: 3,
    ScaleReason.BACKLOG: 3,
    ScaleReason.ATTAINMENT: 3,
    ScaleReason.CONSOLIDATE: 2,
    ScaleReason.COOLDOWN: 1,
}
POLICIES: Mapping[PolicyName, ScalingPolicy] = {
    "slo": SloPolicy(),
    "advise": SloPolicy(),
    "external": SloPolicy(),
    "queue": TargetTracking("queue", waiting),
    "concurrency": TargetTracking("concurrency", open_requests),
    "kv": TargetTracking("kv", kv_pages),
    "fixed": Fixed(),
}


def decide(observation: Observation, state: State, knowledge: Knowledge) -> tuple[Decision, State]:
    """Decide by the service's policy; returns the decision and the state to remember."""
    state = learn(observation, state)
    work = estimate(observation, state.learned, knowledge)
    recommendation, own = recommend(work, state.own)
    return constrain(work, recommendation), replace(state, own=own)


def recommend(work: WorkEstimate, own: PolicyState | None) -> tuple[Recommendation, PolicyState]:
    """The policy's recommendation, with scale to and from zero, before any constraint."""
    policy, parts = POLICIES[work.spec.policy], []
    remembered = policy.state_type() if own is None else own
    for group in work.groups:
        part, remembered = policy.recommend(group, work, remembered)
        parts.append(part)
    # the reason of the part that changes most: up before down before cooldown before hold
    first = max(parts, key=lambda part: _PRECEDENCE.get(part.reason, 0))
    counts = {name: count for part in parts for name, count in part.counts.items()}
    deferred = tuple(cls for cls in first.deferred if all(cls in part.deferred for part in parts))
    joined = replace(first, counts=counts, capacity=min(part.capacity for part in parts), deferred=deferred)
    return _scale_from_zero(work, _scale_to_zero(work, joined)), remembered


def _scale_to_zero(work: WorkEstimate, recommendation: Recommendation) -> Recommendation:
    """After `scaleToZero.after` without a request all replicas go at once; the last one has no cooldown."""
    after = work.spec.idle_after_s
    if after is None or work.idle_s < after or any(pool.min for pool in work.spec.pools):
        return recommendation
    body = f"no request for {work.idle_s:.0f} s (scaleToZero.after is {after:.0f} s)"
    return replace(
        recommendation, counts=dict.fromkeys(recommendation.counts, 0), reason=ScaleReason.SCALE_TO_ZERO, body=body
    )


def _scale_from_zero(work: WorkEstimate, recommendation: Recommendation) -> Recommendation:
    """A request starts one replica of each role at zero, or as many as the policy recommends."""
    counts = dict(recommendation.counts)
    at_zero = [group for group in work.groups if group.desired == 0]
    classes = work.observation.demand.classes
    requested = any(cls.held or cls.queued or (cls.flows and cls.flows[0].arrivals > 0) for cls in classes)
    if not at_zero or not requested:
        return recommendation
    for group in at_zero:
        if not any(counts[pool.spec.name] for pool in group.pools):
            counts[group.pools[0].spec.name] = 1
    held = sum(max(cls.held, cls.queued) for cls in classes)
    body = f"{counted(held, 'request')} waiting for the first replica" if held else "requests arrive, no replica runs"
    return replace(recommendation, counts=counts, reason=ScaleReason.SCALE_FROM_ZERO, body=body, deferred=())

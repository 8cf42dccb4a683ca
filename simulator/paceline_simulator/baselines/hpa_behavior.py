"""The HorizontalPodAutoscaler's behavior: stabilization windows and rate policies.

Source: kubernetes/kubernetes v1.36.3, pkg/controller/podautoscaler/horizontal.go (recordInitialRecommendation,
stabilizeRecommendationWithBehaviors, convertDesiredReplicasWithBehaviorRate, calculateScaleUpLimitWithScalingRules,
calculateScaleDownLimitWithBehaviors); the defaults are those of pkg/apis/autoscaling/v2/defaults.go. Of several
policies the one that allows most applies; selectPolicy Min and Disabled are left out, since no baseline sets them.

The controller stores what it wrote. Here the change shows in the next observation, so that bounds and a budget that
cut an order count too.
"""

from dataclasses import dataclass, replace
from math import ceil
from typing import Literal

from paceline_autoscaler.model.series import Series, TimedValue, newer_than


@dataclass(frozen=True, slots=True)
class RatePolicy:
    """At most `value` pods, or percent of the replicas at the start of the period, in `period_s`."""

    kind: Literal["Pods", "Percent"]
    value: int
    period_s: float


@dataclass(frozen=True, slots=True)
class ScalingRules:
    """One direction: the window whose most cautious recommendation applies, and the rate policies."""

    stabilization_s: float
    policies: tuple[RatePolicy, ...]

    @property
    def longest_period_s(self) -> float:
        return max(policy.period_s for policy in self.policies)


@dataclass(frozen=True, slots=True)
class Behavior:
    """Both directions. By default up at once, by 100 % or 4 pods in 15 s; down to the highest of five minutes."""

    up: ScalingRules = ScalingRules(0.0, (RatePolicy("Pods", 4, 15.0), RatePolicy("Percent", 100, 15.0)))
    down: ScalingRules = ScalingRules(300.0, (RatePolicy("Percent", 100, 15.0),))


DEFAULT_BEHAVIOR = Behavior()


@dataclass(frozen=True, slots=True)
class ScaleHistory:
    """Recommendations before stabilization, changes of the ordered replicas, and what was ordered when last decided."""

    recommendations: Series = ()
    changes: Series = ()
    ordered: TimedValue | None = None


NO_HISTORY = ScaleHistory()


def observe_order(history: ScaleHistory, current: int, now: float, behavior: Behavior) -> ScaleHistory:
    """Record that `current` replicas are ordered now, and forget what no rule reads any more."""
    changes, recommendations = history.changes, history.recommendations
    if history.ordered is None:
        recommendations = (TimedValue(now, current),)
    elif current != history.ordered.value:
        changes = (*changes, TimedValue(history.ordered.at, current - history.ordered.value))
    longest = max(behavior.up.longest_period_s, behavior.down.longest_period_s)
    window = max(behavior.up.stabilization_s, behavior.down.stabilization_s)
    return ScaleHistory(
        newer_than(recommendations, now, window), newer_than(changes, now, longest), TimedValue(now, current)
    )


def recommend(history: ScaleHistory, wanted: int, now: float) -> ScaleHistory:
    """Record a recommendation."""
    return replace(history, recommendations=(*history.recommendations, TimedValue(now, wanted)))


def stabilized(history: ScaleHistory, wanted: int, current: int, now: float, behavior: Behavior) -> int:
    """Up to no more than the lowest recommendation of the window for up, down to the highest of the one for down."""
    recent_up = newer_than(history.recommendations, now, behavior.up.stabilization_s)
    recent_down = newer_than(history.recommendations, now, behavior.down.stabilization_s)
    lowest = min([wanted, *(int(point.value) for point in recent_up)])
    highest = max([wanted, *(int(point.value) for point in recent_down)])
    return min(max(current, lowest), highest)


def rate_limited(history: ScaleHistory, wanted: int, current: int, now: float, behavior: Behavior) -> int:
    """No more than the rate policies allow from the replicas at the start of each policy's period."""
    if wanted > current:
        limit = max(_grown(history, policy, current, now) for policy in behavior.up.policies)
        return min(wanted, max(limit, current))
    if wanted < current:
        limit = min(_shrunk(history, policy, current, now) for policy in behavior.down.policies)
        return max(wanted, min(limit, current))
    return wanted


def _at_start(history: ScaleHistory, policy: RatePolicy, current: int, now: float) -> int:
    return current - int(sum(change.value for change in newer_than(history.changes, now, policy.period_s)))


def _grown(history: ScaleHistory, policy: RatePolicy, current: int, now: float) -> int:
    start = _at_start(history, policy, current, now)
    return start + policy.value if policy.kind == "Pods" else ceil(start * (1 + policy.value / 100))


def _shrunk(history: ScaleHistory, policy: RatePolicy, current: int, now: float) -> int:
    start = _at_start(history, policy, current, now)
    return start - policy.value if policy.kind == "Pods" else int(start * (1 - policy.value / 100))

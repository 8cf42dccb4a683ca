"""KEDA by llm-d's recipe: two triggers on the endpoint picker's metrics, and the HPA that KEDA makes of them.

Sources: llm-d/llm-d b0d6a794, guides/workload-autoscaling/keda-epp/optimized-baseline (base/scaledobject.yaml,
components/trigger-queue; thresholds, behavior, polling); kedacore/keda 8b4f083,
pkg/scaling/executor/scale_scaledobjects.go (RequestScale), pkg/scalers/prometheus_scaler.go (activity; a query without
series counts as 0). KEDA itself decides between 0 and 1, the HPA from 1 on. Left out, since the recipe sets none:
fallback replicas, idleReplicaCount, cached metrics and an initial cooldown.
"""

from dataclasses import dataclass, replace

from paceline_autoscaler.model.observation import only_pool
from paceline_autoscaler.types import Observation, PoolStatus
from paceline_simulator.baselines.hpa import ExternalMetric, Hpa
from paceline_simulator.baselines.hpa_behavior import NO_HISTORY, Behavior, RatePolicy, ScaleHistory, ScalingRules

_TRIGGERS = (ExternalMetric("queued", 1.0, missing=0.0), ExternalMetric("running", 16.0, missing=0.0))
_DOUBLE = (RatePolicy("Percent", 100, 15.0),)
_BEHAVIOR = Behavior(ScalingRules(0.0, _DOUBLE), ScalingRules(300.0, _DOUBLE))


@dataclass(frozen=True, slots=True)
class KedaState:
    """The HPA's history, and when a trigger was last active."""

    history: ScaleHistory = NO_HISTORY
    last_active: float | None = None


@dataclass(frozen=True, slots=True)
class Keda:
    """A ScaledObject. A trigger is active above `activation`; inactive for `cooldown_s`, a pool of minimum 0 goes to 0.

    KEDA's own polling defaults to 30 s; the recipe polls every `period_s` 15 s, as the HPA does.
    """

    triggers: tuple[ExternalMetric, ...] = _TRIGGERS
    behavior: Behavior = _BEHAVIOR
    activation: float = 0.0
    cooldown_s: float = 300.0
    period_s: float = 15.0
    lag_s: float = 15.0

    def initial_state(self) -> KedaState:
        return KedaState()

    def decide(self, observation: Observation, own: KedaState) -> tuple[dict[str, int], KedaState]:
        pool = only_pool(observation)
        active = any((trigger.value(observation) or 0.0) > self.activation for trigger in self.triggers)
        hpa, history = Hpa(self.triggers, self.behavior).scale(observation, pool, own.history)
        at_zero = self._near_zero(observation, pool, own, active=active)
        own = KedaState(history, observation.now if active else own.last_active)
        return {pool.name: max(hpa, 1) if at_zero is None else at_zero}, own

    def _near_zero(self, observation: Observation, pool: PoolStatus, own: KedaState, *, active: bool) -> int | None:
        """What KEDA orders itself; None while the HPA does."""
        minimum = next(spec.min for spec in observation.goal.pools if spec.name == pool.name)
        if active:
            return max(minimum, 1) if pool.desired == 0 else None
        if pool.desired < minimum:
            return minimum
        if minimum > 0:
            return None
        cooled = own.last_active is None or own.last_active + self.cooldown_s < observation.now
        return 0 if cooled or pool.desired == 0 else None


def keda(queued: float = 1.0, running: float = 16.0) -> Keda:
    """The recipe with other thresholds a replica."""
    queue, open_ones = _TRIGGERS
    return Keda((replace(queue, target=queued), replace(open_ones, target=running)))

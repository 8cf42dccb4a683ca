"""llm-d's SLO-aware recipe: a saturation from measured latencies, a law with a dead band, and an HPA behind it.

Source: llm-d/llm-d d38c9f0c, guides/workload-autoscaling/README.slo-aware.md (signal chain, formula, behavior,
tunables). Saturation is the worst ratio of a latency to its target, capped and averaged; its recording rule runs every
15 s over the half-open window of Prometheus 3. The recipe has one pair of targets at p90; here each target of the
service counts at its own quantile, as the guide advises. Its predicted latencies are left out: they come from a model
in the endpoint picker, and the recipe falls back to measured ones. Note that the credit can make the formula ask for
less than is ordered while replicas start; the HPA's window for scale-down then holds.
"""

from dataclasses import dataclass
from math import ceil, floor

from paceline_autoscaler.model.observation import only_pool
from paceline_autoscaler.model.series import Series, TimedValue, mean, newer_than
from paceline_autoscaler.types import Observation, PoolStatus
from paceline_simulator.baselines.hpa import Hpa, existing
from paceline_simulator.baselines.hpa_behavior import NO_HISTORY, Behavior, RatePolicy, ScaleHistory, ScalingRules
from paceline_simulator.baselines.hpa_replicas import Tolerance, average_value_replicas, milli

_BEHAVIOR = Behavior(
    up=ScalingRules(30.0, (RatePolicy("Percent", 100, 60.0), RatePolicy("Pods", 4, 60.0))),
    down=ScalingRules(180.0, (RatePolicy("Pods", 1, 120.0),)),
)


@dataclass(frozen=True, slots=True)
class _Composite:
    """The formula's result as KEDA's composite metric, whose target of 1 passes it on."""

    wanted: int

    def replicas(self, observation: Observation, pool: PoolStatus, tolerance: Tolerance) -> int | None:
        del observation
        return average_value_replicas(milli(self.wanted), milli(1.0), existing(pool), tolerance)


@dataclass(frozen=True, slots=True)
class SloRecipeState:
    """Capped saturations of the smoothing window, and the HPA's history."""

    samples: Series = ()
    history: ScaleHistory = NO_HISTORY


@dataclass(frozen=True, slots=True)
class SloRecipe:
    """Up above saturation `up`, down below `down`; `cap` must exceed `up`."""

    up: float = 0.55
    down: float = 0.40
    cap: float = 2.0
    smoothing_s: float = 45.0
    behavior: Behavior = _BEHAVIOR
    period_s: float = 15.0
    lag_s: float = 15.0

    def initial_state(self) -> SloRecipeState:
        return SloRecipeState()

    def decide(self, observation: Observation, own: SloRecipeState) -> tuple[dict[str, int], SloRecipeState]:
        pool, now = only_pool(observation), observation.now
        latest = TimedValue(now, min(saturation(observation), self.cap))
        samples = (*newer_than(own.samples, now, self.smoothing_s), latest)
        wanted = self.formula(mean(samples), pool.desired, pool.ready)
        count, history = Hpa((_Composite(wanted),), self.behavior).scale(observation, pool, own.history)
        return {pool.name: count}, SloRecipeState(samples, history)

    def formula(self, saturated: float, ordered: int, ready: int) -> int:
        """Replicas for this smoothed saturation; while some of the ordered ones start, growth is credited with them."""
        if saturated > self.up:
            credit = ready / ordered if 0 < ready < ordered else 1.0
            return ordered + ceil(ordered * (saturated * credit / self.up - 1))
        if saturated < self.down:
            return ordered - floor(ordered * (1 - saturated / self.down))
        return ordered


def saturation(observation: Observation) -> float:
    """The worst ratio of a measured latency to its target; 0 without traffic."""
    targets = {(target.cls, target.metric, target.quantile): target.seconds for target in observation.goal.targets}
    measured = ((one, targets.get((one.cls, one.metric, one.quantile))) for one in observation.latencies)
    return max((one.seconds / target for one, target in measured if target), default=0.0)

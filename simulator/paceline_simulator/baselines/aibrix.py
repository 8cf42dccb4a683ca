"""AIBrix's PodAutoscaler, strategies APA and KPA, as coded.

Source: vllm-project/aibrix e3e10f9, pkg/controller/podautoscaler: algorithm/apa.go, algorithm/kpa.go (both
computeTargetReplicas), metrics/client.go (UpdateMetrics, windows), types/metrics.go (TimeWindow), context/context.go
(defaults) and podautoscaler_controller.go (stabilizeRecommendation, the loop of 10 s). The default metric and target,
half of the KV cache, are those of AIBrix's examples for vLLM.

Three things differ from what its comments intend, and are kept: KPA divides the mean over pods by the target without
multiplying by their number; its panic maximum is not stored; and the cooldown for scale-down takes the lowest
recommendation of its window, where an HPA takes the highest. `intended` mends the last one, which decides most. Left
out: schedules, the GPU optimizer and scale to zero.
"""

from dataclasses import dataclass
from math import ceil, floor
from typing import Literal

from paceline_autoscaler.model.series import Series, TimedValue, mean, newer_than
from paceline_autoscaler.types import Observation, PoolStatus
from paceline_simulator.baselines.base import PerPool, decide_pools
from paceline_simulator.baselines.signals import replica_values


@dataclass(frozen=True, slots=True)
class AibrixHistory:
    """Means over pods and recommendations of one pool, oldest first."""

    values: Series = ()
    recommendations: Series = ()


_NO_HISTORY = AibrixHistory()


@dataclass(frozen=True, slots=True)
class Aibrix:
    """Rates are factors a decision; tolerances are shares of the target, which is of `metric` a replica."""

    strategy: Literal["APA", "KPA"] = "APA"
    metric: str = "kv"
    target: float = 0.5
    up_tolerance: float = 0.1
    down_tolerance: float = 0.1
    max_scale_up_rate: float = 2.0
    max_scale_down_rate: float = 2.0
    panic_threshold: float = 2.0
    stable_window_s: float = 180.0
    panic_window_s: float = 60.0
    up_cooldown_s: float = 0.0
    down_cooldown_s: float = 300.0
    intended: bool = False
    period_s: float = 10.0
    lag_s: float = 0.0

    def initial_state(self) -> PerPool[AibrixHistory]:
        return PerPool()

    def decide(
        self, observation: Observation, own: PerPool[AibrixHistory]
    ) -> tuple[dict[str, int], PerPool[AibrixHistory]]:
        return decide_pools(observation, own, _NO_HISTORY, lambda pool, past: self._scale(observation.now, pool, past))

    def _scale(self, now: float, pool: PoolStatus, history: AibrixHistory) -> tuple[int, AibrixHistory]:
        values = list(replica_values(pool, self.metric).values())
        if pool.desired == 0 or not values:
            return pool.desired, history
        # a window keeps the bucket that is exactly as old as it is long
        recorded = (*history.values, TimedValue(now, sum(values) / len(values)))
        stable_values = tuple(point for point in recorded if point.at >= now - self.stable_window_s)
        panic_values = tuple(point for point in recorded if point.at >= now - self.panic_window_s)
        stable, panic = mean(stable_values), mean(panic_values)
        wanted = self.apa(stable, pool.desired) if self.strategy == "APA" else self.kpa(stable, panic, pool.desired)
        recommendations = (*history.recommendations, TimedValue(now, wanted))
        kept = newer_than(recommendations, now, max(self.up_cooldown_s, self.down_cooldown_s))
        return self.stabilized(recommendations, wanted, pool.desired, now), AibrixHistory(stable_values, kept)

    def apa(self, use: float, replicas: int) -> int:
        """Replicas for a mean use of the stable window."""
        ratio = use / self.target
        if ratio > 1 + self.up_tolerance:
            return min(ceil(replicas * ratio), ceil(self.max_scale_up_rate * replicas))
        if ratio < 1 - self.down_tolerance:
            return max(ceil(replicas * ratio), floor(replicas / self.max_scale_down_rate))
        return replicas

    def kpa(self, stable: float, panic: float, replicas: int) -> int:
        """Replicas for the means of both windows; it panics without load, or when the short one is far above."""
        up = max(1, ceil(self.max_scale_up_rate * replicas))
        down = floor(replicas / self.max_scale_down_rate)
        stable_pods, panic_pods = (min(max(self._pods(value, replicas), down), up) for value in (stable, panic))
        panicking = stable <= 0 or panic / stable > self.panic_threshold
        return max(stable_pods, panic_pods) if panicking else stable_pods

    def _pods(self, value: float, replicas: int) -> int:
        outside = value > self.target * (1 + self.up_tolerance) or value < self.target * (1 - self.down_tolerance)
        return ceil(value / self.target) if outside else replicas

    def stabilized(self, recommendations: Series, wanted: int, replicas: int, now: float) -> int:
        """The highest recommendation of the cooldown for up, the lowest of that for down; `wanted` is the last one."""
        if wanted == replicas:
            return replicas
        window = self.up_cooldown_s if wanted > replicas else self.down_cooldown_s
        recent = [int(point.value) for point in newer_than(recommendations, now, window)] or [wanted]
        if wanted > replicas:
            return max(recent)
        return min(max(recent), replicas) if self.intended else min(recent)

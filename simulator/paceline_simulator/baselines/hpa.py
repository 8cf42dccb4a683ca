"""The Kubernetes HorizontalPodAutoscaler (autoscaling/v2) on an LLM service's metrics.

Source: kubernetes/kubernetes v1.36.3, pkg/controller/podautoscaler/horizontal.go (reconcileAutoscaler,
computeReplicasForMetrics) and config/v1alpha1/defaults.go. The source has no default for a custom metric's target: 5
waiting requests and 70 % of the KV cache are common advice, 70 % of 256 slots is what our own policy `concurrency`
uses. Left out: metrics of CPU and memory, and scale from and to zero, which needs a feature gate.
"""

from dataclasses import dataclass
from typing import Literal, Protocol

from paceline_autoscaler.model.observation import only_pool
from paceline_autoscaler.types import Observation, PoolStatus
from paceline_core.registry.enums import ReplicaState
from paceline_simulator.baselines import signals
from paceline_simulator.baselines.base import PerPool, decide_pools
from paceline_simulator.baselines.hpa_behavior import (
    DEFAULT_BEHAVIOR,
    NO_HISTORY,
    Behavior,
    ScaleHistory,
    observe_order,
    rate_limited,
    recommend,
    stabilized,
)
from paceline_simulator.baselines.hpa_replicas import (
    DEFAULT_TOLERANCE,
    Tolerance,
    average_value_replicas,
    group_pods,
    milli,
    pods_metric_replicas,
)

_SERVICE_METRICS = {
    "queued": signals.queued,
    "waiting": signals.waiting,
    "running": signals.running,
    "open": signals.open_requests,
}


class ScalingMetric(Protocol):
    """One entry of spec.metrics."""

    def replicas(self, observation: Observation, pool: PoolStatus, tolerance: Tolerance) -> int | None:
        """The replicas that this metric asks for; None if it cannot be read."""
        ...


@dataclass(frozen=True, slots=True)
class PodsMetric:
    """type Pods: the mean of a replica metric (`signals.REPLICA_METRICS`) over the pool, against `target`."""

    name: str
    target: float

    def replicas(self, observation: Observation, pool: PoolStatus, tolerance: Tolerance) -> int | None:
        del observation
        pods = group_pods(pool, signals.replica_values(pool, self.name))
        return pods_metric_replicas(pods, milli(self.target), pool.desired, tolerance)


@dataclass(frozen=True, slots=True)
class ExternalMetric:
    """type External, AverageValue: the service's total over the replicas that exist, against `target`.

    `missing`: what counts when no gateway reports; None makes the metric fail.
    """

    name: Literal["queued", "waiting", "running", "open"]
    target: float
    missing: float | None = None

    def replicas(self, observation: Observation, pool: PoolStatus, tolerance: Tolerance) -> int | None:
        value = self.value(observation)
        if value is None:
            return None
        return average_value_replicas(milli(value), milli(self.target), existing(pool), tolerance)

    def value(self, observation: Observation) -> float | None:
        """The total of a service with one pool, or what stands for it when no gateway reports."""
        only_pool(observation)
        silent = signals.gateways_silent(observation)
        return self.missing if silent else _SERVICE_METRICS[self.name](observation)


@dataclass(frozen=True, slots=True)
class Hpa:
    """One HorizontalPodAutoscaler a pool; of several metrics the one that asks for most replicas counts.

    A metric that cannot be read blocks scale-down; when none can, nothing changes.
    """

    metrics: tuple[ScalingMetric, ...]
    behavior: Behavior = DEFAULT_BEHAVIOR
    tolerance: Tolerance = DEFAULT_TOLERANCE
    period_s: float = 15.0
    lag_s: float = 15.0

    def initial_state(self) -> PerPool[ScaleHistory]:
        return PerPool()

    def decide(
        self, observation: Observation, own: PerPool[ScaleHistory]
    ) -> tuple[dict[str, int], PerPool[ScaleHistory]]:
        return decide_pools(observation, own, NO_HISTORY, lambda pool, past: self.scale(observation, pool, past))

    def scale(self, observation: Observation, pool: PoolStatus, history: ScaleHistory) -> tuple[int, ScaleHistory]:
        """One sync of one pool: replicas wanted, and the history to pass next time."""
        now, current = observation.now, pool.desired
        history = observe_order(history, current, now, self.behavior)
        wanted = self._proposal(observation, pool) if current > 0 else None
        if wanted is None:
            return current, history
        stable = stabilized(history, wanted, current, now, self.behavior)
        return rate_limited(history, stable, current, now, self.behavior), recommend(history, wanted, now)

    def _proposal(self, observation: Observation, pool: PoolStatus) -> int | None:
        proposals = [metric.replicas(observation, pool, self.tolerance) for metric in self.metrics]
        valid = [proposal for proposal in proposals if proposal is not None]
        if not valid or (len(valid) < len(proposals) and max(valid) < pool.desired):
            return None
        return max(valid)


def existing(pool: PoolStatus) -> int:
    """The Deployment's status.replicas: those that exist and do not end."""
    return sum(replica.state is not ReplicaState.DRAINING for replica in pool.replicas)


def hpa_queue(target: float = 5.0) -> Hpa:
    """On waiting requests, `target` a replica."""
    return Hpa((ExternalMetric("waiting", target),))


def hpa_kv(target: float = 0.7) -> Hpa:
    """On the used share of the KV cache, `target` on average."""
    return Hpa((PodsMetric("kv", target),))


def hpa_concurrency(target: float = 179.0) -> Hpa:
    """On requests that clients wait for, `target` a replica."""
    return Hpa((ExternalMetric("open", target),))

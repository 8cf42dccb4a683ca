"""The HorizontalPodAutoscaler's replica count of one metric.

Source: kubernetes/kubernetes v1.36.3, pkg/controller/podautoscaler/replica_calculator.go (calcPlainMetricReplicas,
GetExternalPerPodMetricReplicas, groupPods) and metrics/utilization.go (GetMetricUsageRatio). The controller computes
with integers in thousandths; prometheus-adapter 043147e7 (provider.go, metricFor) cuts the rest off. The readiness
rules for CPU (five minutes of initialisation, the initial readiness delay) do not apply to these metrics. A pod without
a node is pending; one with a node runs, and lacks metrics until it is ready.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from paceline_autoscaler.types import PoolStatus
from paceline_core.registry.enums import ReplicaState


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far the ratio of usage to target may leave 1 before the count changes, in each direction."""

    up: float = 0.1
    down: float = 0.1

    def covers(self, ratio: float) -> bool:
        return 1.0 - self.down <= ratio <= 1.0 + self.up


DEFAULT_TOLERANCE = Tolerance()


@dataclass(frozen=True, slots=True)
class PodMetrics:
    """The pods of one pool: the values of those that count, and how many lack one or are not ready."""

    values: tuple[int, ...]
    counted: int
    missing: int = 0
    unready: int = 0


def milli(value: float) -> int:
    """A metric in thousandths; below 0 counts as 0."""
    return int(value * 1000) if value > 0 else 0


def group_pods(pool: PoolStatus, values: Mapping[str, float]) -> PodMetrics:
    """Sort the pool's replicas; draining ones are ignored, and values of unknown replicas count."""
    missing = unready = counted = 0
    left_out = set[str]()
    for replica in pool.replicas:
        if replica.state is ReplicaState.DRAINING:
            left_out.add(replica.name)
        elif replica.state is ReplicaState.STARTING and not replica.node:
            left_out.add(replica.name)
            unready += 1
        elif replica.name not in values:
            missing += 1
        else:
            counted += 1
    kept = tuple(milli(value) for name, value in values.items() if name not in left_out)
    return PodMetrics(kept, counted, missing, unready)


def pods_metric_replicas(pods: PodMetrics, target: int, current: int, tolerance: Tolerance) -> int | None:
    """Replicas that bring the mean over pods to `target` thousandths; None if no pod has a value.

    To scale up, pods without a value or not ready count as 0; to scale down, those without one as exactly the target.
    """
    if not pods.values:
        return None
    ratio = sum(pods.values) // len(pods.values) / target
    unready = pods.unready if ratio > 1.0 else 0
    if not unready and not pods.missing:
        return current if tolerance.covers(ratio) else ceil(ratio * pods.counted)
    assumed, counted = 0, len(pods.values) + unready
    if ratio != 1.0:
        assumed, counted = pods.missing * (target if ratio < 1.0 else 0), counted + pods.missing
    corrected = (sum(pods.values) + assumed) // counted / target
    turned = (corrected > 1.0) if ratio < 1.0 else (ratio > 1.0 > corrected)
    if tolerance.covers(corrected) or turned:
        return current
    replicas = ceil(corrected * counted)
    away = replicas > current if corrected < 1.0 else replicas < current
    return current if away else replicas


def average_value_replicas(total: int, target: int, replicas: int, tolerance: Tolerance) -> int:
    """Replicas for which `total` is `target` thousandths each; `replicas` are those that exist, as in status.replicas.

    Note that a change within the tolerance leaves the existing replicas, not the ordered ones.
    """
    if replicas > 0 and tolerance.covers(total / (target * replicas)):
        return replicas
    return ceil(total / target)

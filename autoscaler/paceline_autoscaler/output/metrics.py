"""The autoscaler's metrics of one pass over one service."""

from paceline_autoscaler.policies.constraints import cost_per_hour
from paceline_autoscaler.types import Decision, Observation
from paceline_core.kube import ObjectKey
from paceline_core.registry import METRICS
from paceline_core.registry.enums import ReplicaState, ScaleLimit
from paceline_core.registry.metrics import SERVICE
from paceline_core.telemetry import Metrics


def record(metrics: Metrics, key: ObjectKey, observation: Observation, decision: Decision, elapsed_s: float) -> None:
    """Record replicas, signals, the decision, and the cost of the `elapsed_s` since the last pass."""
    labels = (key.namespace, key.name)
    metrics.counter("paceline_autoscaler_actuation_errors_total", *labels)  # from 0: a rate misses what begins at 1
    for pool in observation.pools:
        counts = {state: pool.count(state) for state in ReplicaState} | {ReplicaState.DESIRED: pool.desired}
        for state, count in counts.items():
            metrics.gauge("paceline_autoscaler_replicas", *labels, pool.name, state.value).set(count)
    values = decision.reading
    signals = {"demand": values.demand, "backlog": values.backlog, "capacity": values.capacity, "burn": values.burn}
    for signal, value in signals.items():
        if value is not None:
            metrics.gauge("paceline_autoscaler_signal", *labels, signal).set(value)
    metrics.counter(
        "paceline_autoscaler_decisions_total", *labels, decision.direction.value, decision.reason.value
    ).inc()
    if decision.limit is not ScaleLimit.NONE:
        metrics.counter("paceline_autoscaler_limited_total", *labels, decision.limit.value).inc()
    dollars = cost_per_hour(observation.goal, observation.present) * elapsed_s / 3600
    metrics.counter("paceline_cost_dollars_total", *labels).inc(max(dollars, 0.0))


def record_age(metrics: Metrics, key: ObjectKey, signal: str, seconds: float | None) -> None:
    """The age of a signal; one that never came has no age, and no series."""
    series = ("paceline_autoscaler_signal_age_seconds", key.namespace, key.name, signal)
    if seconds is None:
        metrics.forget(*series)
    else:
        metrics.gauge(*series).set(seconds)


def forget(metrics: Metrics, key: ObjectKey) -> None:
    """Drop the series of a service that is gone."""
    for row in METRICS.values():
        if row.owner == "autoscaler" and row.labels[:2] == SERVICE:
            metrics.forget(row.name, key.namespace, key.name)

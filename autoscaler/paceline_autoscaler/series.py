"""The autoscaler's metrics of one pass over one service."""

from paceline_autoscaler.nouns import Decision, Observation
from paceline_autoscaler.policies.guards import cost_per_hour
from paceline_autoscaler.status import present
from paceline_core.kube import ObjectKey
from paceline_core.registry import METRICS
from paceline_core.registry.enums import ReplicaState, ScaleLimit
from paceline_core.registry.metrics import SERVICE
from paceline_core.telemetry import Metrics


def record(metrics: Metrics, key: ObjectKey, seen: Observation, decision: Decision, elapsed_s: float) -> None:
    """Replicas, signals, the decision, and what the replicas cost in the `elapsed_s` since the last pass."""
    place = (key.namespace, key.name)
    metrics.counter("paceline_autoscaler_actuation_errors_total", *place)  # from 0: a rate misses what begins at 1
    for pool in seen.pools:
        counts = {state: pool.count(state) for state in ReplicaState} | {ReplicaState.DESIRED: pool.desired}
        for state, count in counts.items():
            metrics.gauge("paceline_autoscaler_replicas", *place, pool.name, state.value).set(count)
    reading = decision.reading
    signals = {"demand": reading.demand, "backlog": reading.backlog, "capacity": reading.capacity, "burn": reading.burn}
    for signal, value in signals.items():
        if value is not None:
            metrics.gauge("paceline_autoscaler_signal", *place, signal).set(value)
    metrics.counter(
        "paceline_autoscaler_decisions_total", *place, decision.direction.value, decision.reason.value
    ).inc()
    if decision.limit is not ScaleLimit.NONE:
        metrics.counter("paceline_autoscaler_clamped_total", *place, decision.limit.value).inc()
    spent = cost_per_hour(seen.goal, present(seen)) * elapsed_s / 3600
    metrics.counter("paceline_cost_dollars_total", *place).inc(max(spent, 0.0))


def age(metrics: Metrics, key: ObjectKey, signal: str, seconds: float | None) -> None:
    """How old a signal is; a signal that was never heard has no age, and no series."""
    place = ("paceline_autoscaler_signal_age_seconds", key.namespace, key.name, signal)
    if seconds is None:
        metrics.forget(*place)
    else:
        metrics.gauge(*place).set(seconds)


def forget(metrics: Metrics, key: ObjectKey) -> None:
    """A service is gone: drop its series."""
    for row in METRICS.values():
        if row.owner == "autoscaler" and row.labels[:2] == SERVICE:
            metrics.forget(row.name, key.namespace, key.name)

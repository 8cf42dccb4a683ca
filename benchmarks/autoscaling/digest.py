"""A policy's decisions on fixed observations, as a digest: results of decisions that have changed since are void.

An hour of synthetic demand: a ramp, a step, bursts and a lull. What a policy orders is ready twelve observations later.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from math import ceil, sin

from benchmarks.simulator.cells import KV_TOKENS, LIMITS, STEP_TIME, service

from paceline_autoscaler.model.observation import scaling_spec
from paceline_autoscaler.policies.replica_policy import ReplicaPolicy
from paceline_autoscaler.types import (
    Attainment,
    ClassSignals,
    Demand,
    MeasuredLatency,
    Observation,
    PoolStatus,
    RateWindow,
    Replica,
    ScalingSpec,
    SloCounts,
    WorkerLoad,
)
from paceline_core.registry.enums import QueryResult, ReplicaState, RequestClass

_BEGIN = 1_800_000_000.0
_PERIOD_S, _STEPS, _LEAD = 15.0, 240, 12
_PROMPT, _OUTPUT, _EACH = 1000.0, 200.0, 7.0
"""Tokens of a request, and the requests a second that one replica takes."""
_INTERACTIVE = RequestClass.INTERACTIVE


def digest(policy: ReplicaPolicy, reasons: Callable[[], object] = lambda: None) -> str:
    """The first twelve hexadecimal digits of SHA-256 over what a policy decides, and over its reasons each time."""
    spec = scaling_spec(service())
    ordered, found = [2], []
    for step, rate in enumerate(_rates()):
        ready = ordered[max(len(ordered) - _LEAD, 0)]
        counts = policy.replicas(_observation(spec, step, rate, min(ready, ordered[-1]), ordered))
        ordered.append(counts["main"])
        found.append(reasons())
    return hashlib.sha256(repr([*ordered, *filter(None, found)]).encode()).hexdigest()[:12]


def _rates() -> Iterator[float]:
    for step in range(_STEPS):
        burst = 20.0 if step % 60 in range(20, 24) else 0.0
        level = 10.0 + step / 8 if step < 120 else 45.0 if step < 180 else 6.0
        yield max(level + 2.0 * sin(step) + burst, 0.0)


def _observation(spec: ScalingSpec, step: int, rate: float, ready: int, ordered: Sequence[int]) -> Observation:
    desired, load = ordered[-1], rate / _EACH
    excess = max(load - ready, 0.0)
    queued, running = ceil(40 * excess), ceil(rate * 5)
    ttft, tpot = 0.2 + 3 * excess, min(0.015 + 0.06 * load / max(ready, 1), 0.2)
    flows = tuple(RateWindow(s, rate * s, rate * s * _PROMPT) for s in (5.0, 15.0, 60.0))
    signals = ClassSignals(
        _INTERACTIVE,
        flows,
        output_tokens=_OUTPUT,
        queued=queued,
        queued_tokens=round(queued * _PROMPT),
        in_flight=running,
        oldest_s=ttft if queued else 0.0,
    )
    replicas = [Replica(f"r{n}", ReplicaState.READY, 900.0, "node") for n in range(ready)]
    replicas += [Replica(f"r{n}", ReplicaState.STARTING, 60.0, "node") for n in range(ready, desired)]
    loads = tuple(
        WorkerLoad(
            worker=f"r{n}",
            slots=LIMITS.max_seqs,
            running=running // ready,
            waiting=queued // ready,
            queued_tokens=round(queued // ready * _PROMPT),
            kv_tokens=KV_TOKENS,
            kv_used=min(running / ready * (_PROMPT + _OUTPUT / 2) / KV_TOKENS, 1.0),
            step_time=STEP_TIME,
        )
        for n in range(ready)
    )
    judged, bad = rate * 60, min(excess / max(load, 1e-9), 1.0)
    rows = tuple(
        SloCounts(_INTERACTIVE, name, judged * (1 - share), judged * share)
        for name, share in (("tpot_p99", 0.0), ("ttft_p99", bad))
    )
    return Observation(
        now=_BEGIN + step * _PERIOD_S,
        goal=spec,
        demand=Demand(1, 1, (signals,)),
        pools=(PoolStatus("main", desired, tuple(replicas), loads),),
        attainment=Attainment(QueryResult.VALUE, 60.0, rows, "fixed"),
        latencies=(
            MeasuredLatency(_INTERACTIVE, "ttft", 0.99, ttft),
            MeasuredLatency(_INTERACTIVE, "tpot", 0.99, tpot),
        ),
        demand_age_s=1.0,
        attainment_age_s=15.0,
    )

"""llm-d's workload-variant-autoscaler with the token-based saturation analyzer (V2), and the HPA that applies it.

Source: llm-d-incubation/workload-variant-autoscaler 256df39c, internal/engines/analyzers/saturation_v2/analyzer.go
(computeReplicaCapacity, computeK2, aggregateByVariant, estimateSchedulerQueueDemand), saturation/engine_v2.go
(applyUniversalThreshold) and pipeline/cost_aware_optimizer.go (Optimize, scaleDownVariantSet); interval of 60 s from
config/manager/configmap.yaml at 56a651b. A pool is a variant. Its HPA follows the decision as an external metric of
target 1 with the default behavior: the stabilization of up to 240 s in the project's samples would handicap it.

Prompt and output lengths are the service's, not each replica's; queued prompt tokens stand for queued bytes over four.
Left out: capacity guessed from deployment arguments before a first replica, the prefix-hit discount, which the
observation lacks, the rate-anchored estimate, which is off, and GPU limits.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import ceil, floor

from paceline_autoscaler.types import Observation, PoolSpec, PoolStatus, WorkerLoad
from paceline_simulator.baselines.base import PerPool
from paceline_simulator.baselines.hpa import Hpa, existing
from paceline_simulator.baselines.hpa_behavior import DEFAULT_BEHAVIOR, Behavior, ScaleHistory
from paceline_simulator.baselines.hpa_replicas import Tolerance, average_value_replicas, milli

_ROLLING = 10


@dataclass(frozen=True, slots=True)
class RequestShape:
    """Mean prompt and output tokens of a request; 0 when unknown."""

    prompt: float = 0.0
    output: float = 0.0

    @property
    def bucket(self) -> str:
        return "short" if self.output < 100 else "medium" if self.output < 500 else "long"


@dataclass(frozen=True, slots=True)
class Variant:
    """One pool as the optimizer sees it: capacity of a replica and demand in KV tokens."""

    spec: PoolSpec
    replicas: int
    reporting: int
    pending: int
    capacity: float
    demand: float


@dataclass(frozen=True, slots=True)
class WvaState:
    """Compute capacities seen under a queue by pool and output bucket, last capacity by pool, and the last decision."""

    observed: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    capacity: Mapping[str, float] = field(default_factory=dict)
    decided: Mapping[str, int] = field(default_factory=dict)
    decided_at: float | None = None
    histories: PerPool[ScaleHistory] = field(default_factory=PerPool)


@dataclass(frozen=True, slots=True)
class _DesiredReplicas:
    """The metric wva_desired_replicas."""

    decided: Mapping[str, int]

    def replicas(self, observation: Observation, pool: PoolStatus, tolerance: Tolerance) -> int | None:
        del observation
        total = milli(self.decided.get(pool.name, pool.desired))
        return average_value_replicas(total, milli(1.0), existing(pool), tolerance)


@dataclass(frozen=True, slots=True)
class Wva:
    """Decides every `interval_s`; its HPA syncs every `period_s`. Thresholds are shares of supply."""

    kv_threshold: float = 0.80
    queue_threshold: float = 5.0
    scale_up: float = 0.85
    scale_down: float = 0.70
    interval_s: float = 60.0
    behavior: Behavior = DEFAULT_BEHAVIOR
    period_s: float = 15.0
    lag_s: float = 15.0

    def initial_state(self) -> WvaState:
        return WvaState()

    def decide(self, observation: Observation, own: WvaState) -> tuple[dict[str, int], WvaState]:
        if own.decided_at is None or observation.now - own.decided_at >= self.interval_s:
            own = self._optimized(observation, own)
        hpa = Hpa((_DesiredReplicas(own.decided),), self.behavior)
        counts, histories = hpa.decide(observation, own.histories)
        return counts, replace(own, histories=histories)

    def _optimized(self, observation: Observation, own: WvaState) -> WvaState:
        shape, specs = request_shape(observation), {spec.name: spec for spec in observation.goal.pools}
        observed, steps = dict(own.observed), observation.goal.step_tokens
        live = [self.analyze(specs[pool.name], pool, shape, steps, observed) for pool in observation.pools]
        known = {v.spec.name: v.capacity or own.capacity.get(v.spec.name, 0.0) for v in live}
        variants = [replace(v, capacity=known[v.spec.name]) for v in live]
        decided = self.optimize(variants, queue_demand(observation, shape))
        return WvaState(observed, known, decided, observation.now, own.histories)

    def analyze(
        self,
        spec: PoolSpec,
        pool: PoolStatus,
        shape: RequestShape,
        steps: int,
        observed: dict[str, tuple[int, ...]],
    ) -> Variant:
        """One pool's capacity and demand, with `steps` tokens a step; adds what a replica with a queue holds."""
        key, capacities, demand = f"{pool.name}|{shape.bucket}", [], 0
        request = shape.prompt + (0.0 if spec.role == "prefill" else shape.output)
        for load in pool.loads:
            tokens, memory = int(load.kv_used * load.kv_tokens), int(load.kv_tokens * self.kv_threshold)
            if load.waiting >= int(self.queue_threshold) and tokens > 0:
                observed[key] = (*observed.get(key, ()), tokens)[-_ROLLING:]
                compute = tokens
            else:
                compute = _compute_capacity(load, shape, steps, observed.get(key, ())) or memory
            capacities.append(min(memory, compute))
            demand += tokens + int(load.waiting * request)
        pending = max(pool.desired - pool.ready, 0)
        return Variant(
            spec, pool.desired, len(pool.loads) or pool.ready, pending, float(median(capacities)), float(demand)
        )

    def optimize(self, variants: list[Variant], queued: float) -> dict[str, int]:
        """Replicas by pool: the required capacity from the cheapest, else the spare one from the most expensive."""
        demand = sum(variant.demand for variant in variants) + queued
        supply = sum(variant.reporting * variant.capacity for variant in variants)
        coming = sum(variant.pending * variant.capacity for variant in variants)
        required = demand / self.scale_up - supply - coming
        targets = {variant.spec.name: variant.replicas for variant in variants}
        if required > 0:
            _add(variants, targets, required)
        else:
            _remove(variants, targets, max(supply - demand / self.scale_down, 0.0))
        return targets


def _compute_capacity(load: WorkerLoad, shape: RequestShape, step_tokens: int, observed: tuple[int, ...]) -> int:
    """From observations, else from the steady batch of `step_tokens` a step; 0 without either."""
    if observed:
        return int(sum(observed) / len(observed))
    if step_tokens <= 0 or shape.output <= 0:
        return 0
    batch = min(step_tokens * shape.output / (shape.prompt + shape.output), load.slots)
    return int(batch * (shape.prompt + shape.output / 2))


def _add(variants: list[Variant], targets: dict[str, int], required: float) -> None:
    able = [variant for variant in variants if variant.capacity > 0]
    for variant in sorted(able, key=lambda variant: variant.spec.dollars_per_hour / variant.capacity):
        room = max(variant.spec.max - targets[variant.spec.name], 0)
        added = min(ceil(max(required, 0.0) / variant.capacity), room)
        targets[variant.spec.name] += added
        required -= added * variant.capacity


def _remove(variants: list[Variant], targets: dict[str, int], spare: float) -> None:
    dearest_first = sorted(variants, key=lambda v: (-v.spec.dollars_per_hour, v.capacity, v.spec.name))
    for index, variant in enumerate(dearest_first):
        name, current = variant.spec.name, targets[variant.spec.name]
        if variant.capacity <= 0:
            continue
        removed = min(floor(spare / variant.capacity), current - variant.spec.min)
        others = any(targets[other.spec.name] > 0 for other in dearest_first[:index])
        if index == len(dearest_first) - 1 and current - removed < 1 and not others:
            removed = current - 1
        if removed > 0:
            targets[name] -= removed
            spare -= removed * variant.capacity


def request_shape(observation: Observation) -> RequestShape:
    """The mean request of the longest window."""
    arrivals = prompt = output = 0.0
    for cls in observation.demand.classes:
        if cls.flows:
            arrivals += cls.flows[-1].arrivals
            prompt += cls.flows[-1].prompt_tokens
            output += cls.flows[-1].arrivals * (cls.output_tokens or 0.0)
    return RequestShape(prompt / arrivals, output / arrivals) if arrivals > 0 else RequestShape()


def queue_demand(observation: Observation, shape: RequestShape) -> float:
    """KV tokens that the requests queued at the gateways will hold."""
    requests = sum(cls.queued for cls in observation.demand.classes)
    tokens = sum(cls.queued_tokens for cls in observation.demand.classes)
    return max(float(tokens), requests * shape.prompt) + requests * shape.output


def median(values: list[int]) -> int:
    """The middle value, or the mean of the two, cut to an integer; 0 without values."""
    ordered, half = sorted(values), len(values) // 2
    if not ordered:
        return 0
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) // 2

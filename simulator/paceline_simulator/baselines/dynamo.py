"""NVIDIA Dynamo's planner for aggregated engines: throughput scaling, load scaling, or both.

Source: ai-dynamo/dynamo, components/src/dynamo/planner: core/throughput_scaling.py 0c9050c9 (_throughput_agg),
core/load_scaling.py 0c6da1ec (_advance_load_agg, _agg_prefill_scaling, _agg_decode_scaling, _scale_decision),
core/perf_model/agg.py as in release 1.6.1 (estimate_next_ttft, estimate_next_itl, find_best_engine_agg_rps) and
config/defaults.py 1ca60155. By itself throughput scaling sizes for the last interval's traffic; with load scaling it
is the lower bound, and load scaling moves by one replica while no other change is under way.

The planner regresses a step's time on prefill and KV tokens; here the worker's own fit stands for it, its mean prompt
for the moving average of prompts, and running requests over output tokens for the prefill that a step carries. Of the
forecasts only the constant one is taken: ARIMA, the default, Kalman and Prophet need more than scalar arithmetic. Left
out: separate prefill and decode pools, prefix hits, speculation, easy mode and GPU budgets.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil, inf

from paceline_autoscaler.model.capacity import speed_of
from paceline_autoscaler.model.observation import only_pool
from paceline_autoscaler.model.series import Series, TimedValue, mean, newer_than
from paceline_autoscaler.state import PoolSpeed
from paceline_autoscaler.types import Observation, WorkerLoad
from paceline_simulator.baselines.wva import RequestShape, request_shape

_SHORTEST_STEP_S = 1e-6


@dataclass(frozen=True, slots=True)
class EngineModel:
    """What a step of one engine takes for the service's mean request, with at most `budget` prefill tokens in it."""

    speed: PoolSpeed
    shape: RequestShape
    budget: int

    @property
    def context(self) -> float:
        """KV tokens that a decoding request holds on average."""
        return self.shape.prompt + self.shape.output / 2

    def step_s(self, prefill: float, kv_tokens: float) -> float:
        """Seconds of a step with these prefill tokens and KV tokens."""
        fit = self.speed.step_time
        sequences = kv_tokens / self.context if self.context > 0 else 0.0
        linear = fit.base + fit.prefill * prefill + fit.kv * kv_tokens + fit.sequence * sequences
        return max(_SHORTEST_STEP_S, linear)

    def ttft_s(self, queued_tokens: int, kv_tokens: int) -> float:
        """Seconds until a next request's prompt is computed behind these queued tokens."""
        left, seconds = queued_tokens + self.shape.prompt, 0.0
        for _ in range(ceil(left / self.budget)):
            chunk = min(left, self.budget)
            seconds += self.step_s(chunk, kv_tokens)
            left -= chunk
        return seconds

    def itl_s(self, prefill: float, kv_tokens: int) -> float:
        """Seconds between tokens when one more request decodes."""
        return self.step_s(prefill, kv_tokens + self.context)

    def rate(self, ttft_s: float, itl_s: float) -> float:
        """Requests a second of the largest batch within both targets; of a batch of one if even that misses them."""
        best = 0.0
        for batch in range(1, self._largest_batch() + 1):
            held, prefill = batch * self.context, min(batch * self._prefill_each(), self.budget)
            step = self.step_s(prefill, held)
            fits = step <= itl_s and self.ttft_s(int(prefill), int(held)) <= ttft_s
            if not fits and batch > 1:
                break
            admitted = max(self.budget - batch, 0) / (self.shape.prompt * step) if self.shape.prompt > 0 else inf
            best = min(batch / (self.shape.output * step), admitted)
            if not fits:
                break
        return best

    def _prefill_each(self) -> float:
        return self.shape.prompt / max(self.shape.output, 1.0)

    def _largest_batch(self) -> int:
        """By KV cache and slots, and so that a step's budget holds the prompts which replace ended requests."""
        memory = max(1, int(self.speed.kv_tokens / max(1.0, self.context)))
        most = max(1, min(memory, self.speed.slots, self.budget - 1))
        while most > 1 and most * self._prefill_each() > self.budget - most:
            most -= 1
        return most


@dataclass(frozen=True, slots=True)
class DynamoState:
    """Arrival rates of the interval, the last throughput decision, and when it was made or the planner started."""

    rates: Series = ()
    sized: int | None = None
    adjusted_at: float | None = None


@dataclass(frozen=True, slots=True)
class Dynamo:
    """`sensitivity`: the share of a target that the engines left after a scale-down may use."""

    throughput: bool = True
    load: bool = False
    ttft_s: float = 0.5
    itl_s: float = 0.05
    interval_s: float = 180.0
    sensitivity: float = 0.8
    min_observations: int = 5
    period_s: float = 5.0
    lag_s: float = 1.0

    def initial_state(self) -> DynamoState:
        return DynamoState()

    def decide(self, observation: Observation, own: DynamoState) -> tuple[dict[str, int], DynamoState]:
        pool, now = only_pool(observation), observation.now
        own = replace(own, rates=(*newer_than(own.rates, now, self.interval_s), TimedValue(now, _rate(observation))))
        engine = self._engine(observation)
        if own.adjusted_at is None:
            own = replace(own, adjusted_at=now)
        elif self.throughput and engine is not None and now - own.adjusted_at >= self.interval_s:
            sized = max(ceil(mean(own.rates) / engine.rate(self.ttft_s, self.itl_s)), 1)
            own = replace(own, sized=sized, adjusted_at=now)
        least = own.sized if own.sized is not None else 1
        if not self.load:
            return {pool.name: pool.desired if own.sized is None else least}, own
        settled = pool.desired == pool.ready == len(pool.loads)
        if engine is None or not settled or pool.ready == 0:
            return {pool.name: pool.desired}, own
        return {pool.name: max(self.by_load(engine, pool.loads), least)}, own

    def _engine(self, observation: Observation) -> EngineModel | None:
        """The only pool's engine; None without traffic or before enough steps have been observed."""
        pool, shape = only_pool(observation), request_shape(observation)
        speed = speed_of(pool.name, pool.loads)
        if speed is None or speed.step_time.observations < self.min_observations:
            return None
        if shape.prompt <= 0 or shape.output <= 0 or observation.goal.step_tokens <= 0:
            return None
        return EngineModel(speed, shape, observation.goal.step_tokens)

    def by_load(self, engine: EngineModel, loads: Sequence[WorkerLoad]) -> int:
        """One replica more if all engines miss a target, one less if those left keep both; at least one."""
        replicas = len(loads)
        prefill, decode = self._by_ttft(engine, loads), self._by_itl(engine, loads)
        if replicas < max(prefill, decode):
            return replicas + 1
        return max(replicas - 1, 1) if max(prefill, decode) < replicas else replicas

    def _by_ttft(self, engine: EngineModel, loads: Sequence[WorkerLoad]) -> int:
        replicas = len(loads)
        if all(engine.ttft_s(load.queued_tokens, _kv_tokens(load)) > self.ttft_s for load in loads):
            return replicas + 1
        return replicas - (replicas > 1 and all(self._keeps_ttft(engine, load, replicas) for load in loads))

    def _keeps_ttft(self, engine: EngineModel, load: WorkerLoad, replicas: int) -> bool:
        """Whether what queueing adds stays within its share, after one replica's load went to the others."""
        more = replicas / (replicas - 1)
        held = int(_kv_tokens(load) * more)
        alone = engine.ttft_s(0, held)
        room = (self.ttft_s - alone) * self.sensitivity
        return room > 0 and engine.ttft_s(int(load.queued_tokens * more), held) - alone < room

    def _by_itl(self, engine: EngineModel, loads: Sequence[WorkerLoad]) -> int:
        replicas = len(loads)
        if all(engine.itl_s(_step_prefill(engine, load), _kv_tokens(load)) > self.itl_s for load in loads):
            return replicas + 1
        return replicas - (replicas > 1 and all(self._keeps_itl(engine, load, replicas) for load in loads))

    def _keeps_itl(self, engine: EngineModel, load: WorkerLoad, replicas: int) -> bool:
        held = int((_kv_tokens(load) + load.queued_tokens) * replicas / (replicas - 1))
        if held >= load.kv_tokens:
            return False
        return engine.itl_s(_step_prefill(engine, load), held) < self.itl_s * self.sensitivity


def _rate(observation: Observation) -> float:
    """Requests a second in the shortest window."""
    flows = (cls.flows[0] for cls in observation.demand.classes if cls.flows)
    return sum(flow.arrivals / flow.seconds for flow in flows if flow.seconds > 0)


def _kv_tokens(load: WorkerLoad) -> int:
    return int(load.kv_used * load.kv_tokens)


def _step_prefill(engine: EngineModel, load: WorkerLoad) -> float:
    """Prefill tokens of a mean step: prompts replace requests that end."""
    return min(load.running * engine.shape.prompt / max(engine.shape.output, 1.0), engine.budget)

"""The grid: services under a load, each with the goodput that the planner says and the simulator finds.

A cell's engine knows its step time (`prior_within` of the roofline), as the formula does: what is compared is what the
formula says of queues and batches. Arrivals are Poisson, lengths log-normal. The simulated goodput is the rate at which
the allowed share of requests misses TTFT or TPOT, interpolated between the two nearest rates that were simulated.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import exp, log
from random import Random

from paceline_core.kube import ObjectKey
from paceline_core.kube.cluster import ScaleTarget
from paceline_core.objects import InferenceService, ResolvedService
from paceline_core.objects.defaults import resolve
from paceline_core.registry.enums import RequestClass
from paceline_core.units import duration
from paceline_planner.accelerators import accelerator
from paceline_planner.candidates import PlannedLoad, PlannedReplica
from paceline_planner.goodput import LatencyPromise, PoolModel
from paceline_planner.lengths import LengthDistribution
from paceline_planner.shapes import shape
from paceline_planner.splits import DeviceSplit
from paceline_planner.step_clock import FittedClock
from paceline_planner.steptime import Caps
from paceline_simulator.cluster import PoolPlan, StartTimes
from paceline_simulator.engine import EngineSpec
from paceline_simulator.policies import policy_of
from paceline_simulator.simulation import RunPlan, ServicePlan, Simulation
from paceline_simulator.traces import BLOCK, TraceRequest
from paceline_simulator.workloads import combine, poisson
from paceline_workers.engine.scheduling import SchedulerLimits

PAGE_TOKENS = 16
WARM = 0.2
"""The share of a run that is not scored."""
STEP = 1.06
"""From one simulated rate to the next, until one keeps the promise and the other does not."""
MOST_RUNS = 5
SEEDS = 3
LIMITS, ANSWERS = 60, 12
"""A run lasts at least so many times the TTFT limit, and so many answers of the mean length at the TPOT limit."""
_TARGET = ScaleTarget(ObjectKey("default", "chat"), "main")
_LEAST = 1e-3


@dataclass(frozen=True, slots=True)
class Cell:
    """`tight`: TTFT is promised near what an idle replica takes, where goodput is steep and no bar is set."""

    model: str
    accelerator: str
    split: DeviceSplit
    lengths: LengthDistribution
    promise: LatencyPromise
    replicas: int = 1
    slots: int = 256
    tight: bool = False

    @property
    def name(self) -> str:
        lengths = self.lengths
        split = f" ({self.split})" if self.split.devices > 1 else ""
        sizes = f"{lengths.prompt:g}/{lengths.output:g} tokens, cv {lengths.prompt_cv:g}"
        cached = f", {lengths.cached:.0%} cached" if lengths.cached else ""
        return f"{self.model} on {self.replicas} x {self.accelerator}{split}, {sizes}{cached}, {self.slots} slots"

    @property
    def replica(self) -> PlannedReplica:
        return PlannedReplica(shape(self.model), accelerator(self.accelerator), self.split, Caps(2048, self.slots))

    @property
    def pool(self) -> PoolModel:
        return replace(self.replica.pool(PlannedLoad(1.0, self.lengths, self.promise)), replicas=self.replicas)


def _promise(ttft_s: float, tpot_s: float) -> LatencyPromise:
    return LatencyPromise(ttft_s, tpot_s)


CHAT, LONG, SHORT = LengthDistribution(1000, 200), LengthDistribution(4000, 500), LengthDistribution(500, 100)
GRID = (
    Cell("llama-3.1-8b", "h100", DeviceSplit(), CHAT, _promise(0.5, 0.05)),
    Cell("llama-3.1-8b", "h100", DeviceSplit(), CHAT, _promise(0.5, 0.05), replicas=4),
    Cell("llama-3.1-8b", "h100", DeviceSplit(), LengthDistribution(200, 500), _promise(0.5, 0.05), slots=64),
    Cell("llama-3.1-8b", "h100", DeviceSplit(), LengthDistribution(4000, 32), _promise(1.0, 0.1)),
    Cell("llama-3.1-8b", "h100", DeviceSplit(), LengthDistribution(4000, 32), _promise(1.0, 0.1), replicas=4),
    Cell("llama-3.1-8b", "l4", DeviceSplit(), SHORT, _promise(2.0, 0.1), slots=64),
    Cell("llama-3.1-8b", "l4", DeviceSplit(), LengthDistribution(1000, 200, 0.0, 0.0), _promise(2.0, 0.1), slots=64),
    Cell("llama-3.1-8b", "a100", DeviceSplit(), LengthDistribution(2048, 100, 0.0, 0.0, 0.5), _promise(1.0, 0.05)),
    Cell("qwen3-32b", "h100", DeviceSplit(2), LONG, _promise(2.0, 0.1)),
    Cell("qwen3-32b", "h100", DeviceSplit(2), LONG, _promise(2.0, 0.1), replicas=4),
    Cell("qwen3-32b", "h200", DeviceSplit(), LengthDistribution(500, 1000), _promise(2.0, 0.05)),
    Cell("llama-3.3-70b", "h100", DeviceSplit(4), CHAT, _promise(1.0, 0.05)),
    Cell("llama-3.3-70b", "h200", DeviceSplit(2), LengthDistribution(2000, 300), _promise(2.0, 0.1), replicas=2),
    Cell("mixtral-8x7b", "h100", DeviceSplit(2), CHAT, _promise(0.5, 0.05)),
    Cell("qwen3-32b", "h200", DeviceSplit(), LengthDistribution(8000, 300), _promise(5.0, 0.1), tight=True),
)


def simulated_goodput(cell: Cell, start: float, requests: int) -> tuple[float, list[dict[str, float]]]:
    """Requests a second of all replicas, and the simulated rates with their shares; `start` is the first rate.

    `requests`: of a run at least. It lasts until a small overload shows, and until many answers end.
    """
    span = max(requests / start, LIMITS * cell.promise.ttft_s, ANSWERS * cell.lengths.output * cell.promise.tpot_s)
    return crossing(lambda rate: missed(cell, rate, span), cell.promise.late, start)


def crossing(
    measure: Callable[[float], dict[str, float]], allowed: float, start: float
) -> tuple[float, list[dict[str, float]]]:
    """The rate at which the allowed share is `missed`, interpolated, and what was measured on the way."""
    rows: dict[float, dict[str, float]] = {}
    rate, up, down = start, 0.0, 0.0
    while len(rows) < MOST_RUNS and not (up and down):
        rows[rate] = measure(rate)
        if rows[rate]["missed"] <= allowed:
            up, rate = rate, rate * STEP
        else:
            down, rate = rate, rate / STEP
    kept = [rate for rate in rows if rows[rate]["missed"] <= allowed]
    lost = [rate for rate in rows if rows[rate]["missed"] > allowed]
    if not kept or not lost:
        return (max(kept) if kept else min(lost)), list(rows.values())
    low, high = max(kept), min(lost)
    a, b = (log(max(rows[rate]["missed"], _LEAST)) for rate in (low, high))
    part = (log(allowed) - a) / (b - a)
    return exp(log(low) + part * (log(high) - log(low))), list(rows.values())


def missed(cell: Cell, rate: float, span: float) -> dict[str, float]:
    """The larger of the shares of requests that miss TTFT and TPOT at a rate, over so many seconds, and both.

    Means over SEEDS runs; several replicas are as many queues, so that one run is enough.
    """
    runs = [_shares(cell, rate, span, seed) for seed in range(SEEDS if cell.replicas == 1 else 1)]
    late, slow = (sum(run[place] for run in runs) / len(runs) for place in (0, 1))
    return {"rate": rate, "missed": max(late, slow), "ttft": late, "tpot": slow}


def _shares(cell: Cell, rate: float, span: float, seed: int) -> tuple[float, float]:
    times, lengths = Random(2 * seed), Random(2 * seed + 1)
    arrivals = combine(poisson(rate, times), lambda random: _request(cell, random), lengths, span)
    plan = PoolPlan(_TARGET, engine(cell), StartTimes.of(60.0))
    service = ServicePlan(
        _service(cell), (plan,), {RequestClass.INTERACTIVE: arrivals}, policy_of(f"static:{cell.replicas}"),
        {"main": cell.replicas},
    )  # fmt: skip
    rows = list(Simulation(RunPlan((service,), score=(WARM * span, span))).run().scored())
    late = sum(row.ttft is None or row.ttft > cell.promise.ttft_s for row in rows)
    slow = sum(row.tpot is not None and row.tpot > cell.promise.tpot_s for row in rows)
    return late / len(rows), slow / len(rows)


def engine(cell: Cell) -> EngineSpec:
    pool, cached = cell.pool, cell.lengths.cached > 0
    limits = SchedulerLimits(
        max_model_len=min(shape(cell.model).max_context, pool.speed.kv_tokens),
        vocab_size=1 << 31,
        page_tokens=PAGE_TOKENS,
        max_seqs=cell.slots,
        step_tokens=pool.step_tokens,
        tpot=dict.fromkeys(RequestClass, cell.promise.tpot_s),
    )
    step = pool.speed.step_time
    return EngineSpec(FittedClock(step), step, limits, pool.speed.kv_tokens // PAGE_TOKENS, prefix_cache=cached)


def _request(cell: Cell, random: Random) -> TraceRequest:
    """Cached parts of prompts are blocks that all requests share; the others are unique."""
    lengths = cell.lengths
    prompt = max(round(_drawn(lengths.prompt, lengths.prompt_cv, random)), 1)
    output = max(round(_drawn(lengths.output, lengths.output_cv, random)), 1)
    if not lengths.cached:
        return TraceRequest(0.0, prompt, output)
    shared = tuple(range(1, int(prompt * lengths.cached) // BLOCK + 1))
    rest = -(-prompt // BLOCK) - len(shared)
    return TraceRequest(0.0, prompt, output, (*shared, *(random.randrange(1 << 10, 1 << 30) for _ in range(rest))))


def _drawn(mean: float, cv: float, random: Random) -> float:
    square = log(1 + cv**2)
    return random.lognormvariate(log(mean) - square / 2, square**0.5)


def _service(cell: Cell) -> ResolvedService:
    promise = cell.promise
    slo = {"ttft": {"p95": duration(promise.ttft_s)}, "tpot": {"p95": duration(promise.tpot_s)}}
    return resolve(
        InferenceService.model_validate(
            {
                "metadata": {"name": "chat", "namespace": "default", "uid": "chat"},
                "spec": {
                    "model": {"source": "builtin://demo", "servedName": "chat"},
                    "classes": {"interactive": {"queueLimit": 100_000, "slo": slo}},
                    "pools": [{"name": "main", "accelerator": "h100", "replicas": {"min": 1, "max": 64}}],
                },
            }
        )
    )


def grid(quick: bool) -> Iterator[Cell]:
    """`quick`: one in five."""
    return iter(GRID[:: 5 if quick else 1])

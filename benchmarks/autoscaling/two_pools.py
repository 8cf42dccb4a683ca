"""Two pools at 2:1 in price: our policy beside the best constant pair of counts, found by trying them, exactly.

Pool `one` has a GPU a replica and at most MOST_ONE of them, pool `two` has two GPUs a replica and does SPEED times as
much. Demand is steady, with the conversation log's lengths, at several levels. Our policy begins with two replicas and
one, and knows a week of such demand. Of the pairs that attain at least as much as it does, by the same requests, the
cheapest counts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from random import Random

from benchmarks.autoscaling.cells import WARMUP_S, Window
from benchmarks.autoscaling.exact import SCRAPE_LAG_S, SPREAD, run_plan
from benchmarks.autoscaling.learned import before
from benchmarks.autoscaling.store import FOLDER, write
from benchmarks.simulator.cells import LEAD_S, STEP_TIME, TARGET, engine, scaled, service, trace

from paceline_autoscaler.model.work_history import MAX_BINS
from paceline_autoscaler.policies.replica_policy import ProductionPolicy, ReplicaPolicy, having_started
from paceline_autoscaler.state import Knowledge
from paceline_autoscaler.types import Observation
from paceline_core.registry.enums import RequestClass
from paceline_planner.step_clock import FittedClock
from paceline_simulator.cluster import PoolPlan, StartTimes
from paceline_simulator.control import MetricsSpec
from paceline_simulator.simulation import ServicePlan, Simulation
from paceline_simulator.traces import TraceRequest
from paceline_simulator.workloads import combine, poisson, resampled

FILE = FOLDER / "two_pools.json"
RATES = (12.0, 20.0, 28.0, 36.0, 44.0)
"""Requests a second."""
MOST_ONE, MOST_TWO = 3, 8
SPEED = 1.7
FIRST = {"one": 2, "two": 1}
SEED = 1
_SECONDS = 1800.0
_EQUAL = 1e-3
"""A pair attains as much if it attains less by so little."""
_POOLS = (
    {"name": "one", "accelerator": "h100", "replicas": {"min": 0, "max": MOST_ONE}},
    {"name": "two", "accelerator": "h100", "gpusPerReplica": 2, "replicas": {"min": 0, "max": MOST_TWO}},
)


@dataclass(frozen=True, slots=True)
class Pair:
    """Mean replicas of both pools, what the requests attained with them (0 to 1), and GPU-hours."""

    one: float
    two: float
    attainment: float
    gpu_hours: float


@dataclass(frozen=True, slots=True)
class TwoPools:
    """At a rate in requests a second: our policy, and the cheapest pair that attains as much."""

    rate: float
    ours: Pair
    best: Pair


@dataclass(frozen=True, slots=True)
class _Constant:
    """Always these counts."""

    counts: Mapping[str, int]
    period_s: float = 15.0
    lag_s: float = SCRAPE_LAG_S
    retires: bool = True

    def replicas(self, observation: Observation) -> Mapping[str, int]:
        del observation
        return self.counts


def compare(rate: float) -> TwoPools:
    """Try pairs from the cheapest on."""
    known = _known(rate)
    window = _window(rate)
    requests = window.requests(SEED)
    ours = _run(window, requests, known, FIRST)
    demand = known.knowledge.histories[0][1].mean
    for one, two in sorted(product(range(MOST_ONE + 1), range(MOST_TWO + 1)), key=lambda pair: pair[0] + 2 * pair[1]):
        if one + SPEED * two >= demand:
            counts = {"one": one, "two": two}
            found = _run(window, requests, _Constant(counts), counts)
            if found.attainment >= ours.attainment - _EQUAL:
                return TwoPools(rate, ours, found)
    raise ValueError(f"no pair attains {ours.attainment:.4f} at {rate:g} requests a second")


def _known(rate: float) -> ProductionPolicy:
    """Our policy after a week of what it sees on other requests at this rate."""
    state = having_started(dict.fromkeys(FIRST, LEAD_S))
    seen, window = ProductionPolicy(state=state), _window(rate)
    _run(window, window.requests(SEED + 1), seen, FIRST)
    ((role, history),) = seen.recorder.histories
    codes = (history.codes.replace(b"\0", b"") * MAX_BINS)[:MAX_BINS]
    return ProductionPolicy(state=state, knowledge=Knowledge(((role, before(replace(history, codes=codes))),)))


def _window(rate: float) -> Window:
    def draw(seed: int) -> list[TraceRequest]:
        random = Random(f"two pools {rate} {seed}")
        return combine(poisson(rate, random), resampled(trace("conv")), random, WARMUP_S + _SECONDS)

    return Window(f"{rate:g} a second", _SECONDS, draw)


def _run(window: Window, requests: Sequence[TraceRequest], policy: ReplicaPolicy, replicas: Mapping[str, int]) -> Pair:
    fast = scaled(STEP_TIME, 1 / SPEED)
    engines = {"one": engine(), "two": replace(engine(), clock=FittedClock(fast), model=fast)}
    start = StartTimes.of(LEAD_S, SPREAD)
    pools = tuple(
        PoolPlan(replace(TARGET, pool=name), engines[name], start, gpus=gpus) for name, gpus in (("one", 1), ("two", 2))
    )
    arrivals = {RequestClass.INTERACTIVE: requests}
    made = ServicePlan(service(pools=_POOLS), pools, arrivals, policy, replicas, MetricsSpec(lag_s=SCRAPE_LAG_S))
    result = Simulation(run_plan(window, made, SEED)).run()
    one, two = (result.pool_gpu_s[pool.target] / pool.gpus / _SECONDS for pool in pools)
    gpu_hours = sum(result.gpu_s.values()) / 3600
    return Pair(round(one, 3), round(two, 3), round(result.attainment(), 5), round(gpu_hours, 4))


def save(found: Sequence[TwoPools]) -> None:
    write(FILE, {"speed": SPEED, "rows": list(map(asdict, found))})


def table(found: Sequence[TwoPools]) -> str:
    """Markdown."""
    rows = [
        f"| {one.rate:g} | {_words(one.ours)} | {_words(one.best)} | {one.ours.gpu_hours / one.best.gpu_hours:.3f} |"
        for one in found
    ]
    head = "| requests/s | ours: one + two, attainment, GPU-hours | best pair | ratio |"
    return "\n".join([head, "|---" * 4 + "|", *rows])


def _words(pair: Pair) -> str:
    return f"{pair.one:.2f} + {pair.two:.2f}, {100 * pair.attainment:.2f} %, {pair.gpu_hours:.2f}"

"""One exact run: a policy on a window with a seed, every request through the production parts.

Engine, bounds and promise are those of `benchmarks.simulator.cells`. A start takes 180 s, 15 % more or less, and our
policy has seen one before. All policies but a static pool begin with the same replicas: those that the first minute's
work needs at 70 % of a replica's throughput. GPU time counts from order to release within the scored window.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from math import ceil
from typing import Any

from benchmarks.autoscaling.cells import WARMUP_S, Window
from benchmarks.autoscaling.settings import MOST
from benchmarks.simulator.cells import LEAD_S, TARGET, engine, service

from paceline_autoscaler.policies.replica_policy import ReplicaPolicy
from paceline_core.registry.enums import Outcome, RequestClass
from paceline_simulator.cluster import PoolPlan, StartTimes
from paceline_simulator.control import MetricsSpec
from paceline_simulator.results import LatencyLimits, RequestResult, SimulationResult
from paceline_simulator.simulation import MOMENT_S, RunPlan, ServicePlan, Simulation
from paceline_simulator.traces import TraceRequest

SPREAD = 0.15
SCRAPE_LAG_S = 15.0
HOLDS = 0.99
BLOCK_S = 300.0
PROMISE = LatencyLimits()
"""TTFT within 2 s and a second for 3,000 prompt tokens, mean TPOT within 100 ms."""
WASTED_S = 2 * LEAD_S
"""Such a replica never began to serve, or served for less time than its start took."""
_GRACE_S = 300.0
"""Requests that arrived in the window may end this much later."""
_CHECK_S = 60.0


@dataclass(frozen=True, slots=True)
class Block:
    """The requests that arrived within BLOCK_S, how many attained, and the GPU-seconds of that time."""

    offered: int
    attained: int
    gpu_s: float


@dataclass(frozen=True, slots=True)
class RunResult:
    """One run. `misses` by cause: shed, failed, ttft, tpot, unfinished; `complete`: it was not given up.

    `gpu_hours` are of the scored window, `starts` the replicas ordered in it, `wasted` those of them that were given up
    within WASTED_S. `replayed`: of our policy's decisions, how many were the same when computed again from a ledger's
    line, and their number.
    """

    offered: int
    attainment: float
    gpu_hours: float
    misses: dict[str, int]
    starts: int
    wasted: int
    ttft_p99_s: float
    blocks: tuple[Block, ...]
    cpu_s: float
    complete: bool
    replayed: tuple[int, int] | None = None

    @property
    def holds(self) -> bool:
        """Whether it ran to its end and kept the promise."""
        return self.complete and self.attainment >= HOLDS

    def json(self) -> dict[str, Any]:
        return asdict(self)


def run(  # noqa: PLR0913 - what names a run
    window: Window,
    requests: Sequence[TraceRequest],
    policy: ReplicaPolicy,
    seed: int,
    replicas: int,
    *,
    lead_s: float = LEAD_S,
    give_up: float = 0.0,
) -> RunResult:
    """Simulate; it ends early once attainment cannot reach `give_up` any more."""
    score = (WARMUP_S, window.end)
    begun = time.process_time()
    made = Simulation(run_plan(window, service_plan(requests, policy, replicas, lead_s), seed))
    offered = sum(score[0] <= request.at < score[1] for request in requests)
    lost = _Losses(made, round((1 - give_up) * offered))
    made.events.every(_CHECK_S, lost.check, first=WARMUP_S)
    result = made.run()
    return _result(result, offered, time.process_time() - begun, complete=not lost.given_up)


def service_plan(
    requests: Sequence[TraceRequest], policy: ReplicaPolicy, replicas: int, lead_s: float = LEAD_S
) -> ServicePlan:
    """One pool; the metrics are SCRAPE_LAG_S old."""
    pool = PoolPlan(TARGET, engine(), StartTimes.of(lead_s, SPREAD))
    arrivals = {RequestClass.INTERACTIVE: requests}
    return ServicePlan(service(MOST), (pool,), arrivals, policy, {"main": replicas}, MetricsSpec(lag_s=SCRAPE_LAG_S))


def run_plan(window: Window, made: ServicePlan, seed: int) -> RunPlan:
    """The service alone, through the window."""
    score = (WARMUP_S, window.end)
    return RunPlan((made,), seed=seed, score=score, until=window.end + _GRACE_S, latency=PROMISE)


def first_replicas(requests: Sequence[TraceRequest], work_s: float) -> int:
    """For the first minute, with `work_s` replica-seconds for each request."""
    arrived = sum(request.at < 60 for request in requests)
    return min(max(ceil(arrived / 60 * work_s / 0.7), 1), MOST)


@dataclass(slots=True)
class _Losses:
    """Ends the run when more requests than allowed have missed."""

    simulation: Simulation
    allowed: int
    seen: int = 0
    missed: int = 0
    given_up: bool = False

    def check(self) -> None:
        result = self.simulation.result
        new = result.requests[self.seen :]
        self.seen += len(new)
        self.missed += sum(result.start <= r.at < result.end and not r.attained for r in new)
        if self.missed > self.allowed:
            self.given_up = True
            self.simulation.events.stop()


def _result(result: SimulationResult, offered: int, cpu_s: float, *, complete: bool) -> RunResult:
    scored = list(result.scored())
    ttft = sorted(request.ttft for request in scored if request.ttft is not None)
    misses: dict[str, int] = {"unfinished": offered - len(scored)}
    for request in scored:
        if not request.attained:
            cause = _cause(request)
            misses[cause] = misses.get(cause, 0) + 1
    desired = [moment.desired for moment in result.timeline if result.start <= moment.at < result.end]
    return RunResult(
        offered=offered,
        attainment=1 - sum(misses.values()) / offered,
        gpu_hours=sum(result.gpu_s.values()) / 3600,
        misses=misses,
        starts=sum(max(later - before, 0) for before, later in pairwise(desired)),
        wasted=wasted_starts(desired),
        ttft_p99_s=ttft[int(0.99 * len(ttft))] if ttft else 0.0,
        blocks=_blocks(result, scored),
        cpu_s=cpu_s,
        complete=complete,
    )


def wasted_starts(desired: Sequence[int]) -> int:
    """Of the replicas ordered every MOMENT_S, how many were given up within WASTED_S; the latest order goes first."""
    opened: list[int] = []
    wasted = 0
    for place, (before, later) in enumerate(pairwise(desired)):
        opened += [place] * (later - before)
        for _ in range(min(before - later, len(opened))):
            wasted += (place - opened.pop()) * MOMENT_S < WASTED_S
    return wasted


def _cause(request: RequestResult) -> str:
    if request.outcome is Outcome.SHED:
        return "shed"
    if request.outcome is not Outcome.OK:
        return "failed"
    limit_s = PROMISE.ttft_limit_s(request.prompt_tokens)
    return "ttft" if request.ttft is not None and request.ttft > limit_s else "tpot"


def _blocks(result: SimulationResult, scored: Sequence[RequestResult]) -> tuple[Block, ...]:
    count = ceil((result.end - result.start) / BLOCK_S)
    offered, attained, gpu_s = [0] * count, [0] * count, [0.0] * count
    for request in scored:
        place = int((request.at - result.start) / BLOCK_S)
        offered[place] += 1
        attained[place] += request.attained
    for at, _ in result.unfinished:
        if result.start <= at < result.end:
            offered[int((at - result.start) / BLOCK_S)] += 1
    for moment in result.timeline:
        if result.start <= moment.at < result.end:
            place = int((moment.at - result.start) / BLOCK_S)
            gpu_s[place] += MOMENT_S * (moment.ready + moment.starting + moment.draining)
    return tuple(Block(*row) for row in zip(offered, attained, gpu_s, strict=True))

"""The fluid model against the exact simulator: the same requests and policies on three workloads.

    conv    Azure 2023 conversations, 6 copies at random phases
    code    Azure 2023 code, 10 copies
    gamma   20 and 60 requests/s in turn, 450 s each on average, CV 3, with conv's lengths

A start takes 180 s, in the exact simulator 15 % more or less, and `slo` has seen one before. The first 600 s are
neither scored nor paid. Differences have bars where the exact run attains 95 % at least: nobody would operate
elsewhere. Speed is simulated over CPU time, without the making of bins, which serve many runs.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

from benchmarks.harness import Bar, Measured, Row
from benchmarks.simulator.cells import (
    KV_TOKENS,
    LEAD_S,
    LIMITS,
    PAGE_TOKENS,
    STEP_TIME,
    TARGET,
    Cell,
    plan,
    service,
    trace,
)

from paceline_autoscaler.model.observation import scaling_spec
from paceline_autoscaler.policies.fluid import run
from paceline_autoscaler.policies.fluid_types import FluidPlan
from paceline_autoscaler.state import PoolSpeed
from paceline_simulator.bins import demand_bins, length_spread
from paceline_simulator.cluster import EPOCH, StartTimes
from paceline_simulator.policies import policy_of
from paceline_simulator.simulation import Simulation
from paceline_simulator.traces import TraceRequest
from paceline_simulator.workloads import combine, mmpp, resampled

SPAN_S, WARMUP_S = 2400.0, 600.0
QUICK_SPAN_S, QUICK_WARMUP_S = 90.0, 30.0
POLICIES = ("slo", "keda", "slo-recipe", "hpa-queue")
STATIC = {"conv": (4, 5), "code": (7, 9, 11), "gamma": (7, 8)}
"""Tight numbers of replicas and a wide one."""
FIRST = {"conv": 6, "code": 8, "gamma": 8}
GPU_HOURS, ATTAINMENT, SPEED = Bar(5.0), Bar(1.0), Bar(5000.0, at_least=True)
OPERATED = 0.95
SIMPLE = ("static", "hpa-queue")
"""Policies whose speed has a bar."""
REPLICA = PoolSpeed("main", STEP_TIME, LIMITS.max_seqs, KV_TOKENS // PAGE_TOKENS * PAGE_TOKENS)
Score = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Attainment and cost of a run in its scored window, and the CPU time that it took."""

    attainment: float
    gpu_hours: float
    cpu_s: float


def measure(quick: bool) -> Measured:
    """Differences and speeds; a quick run has one static pool for a minute."""
    rows: list[Row] = []
    details: dict[str, Any] = {}
    score = (QUICK_WARMUP_S, QUICK_SPAN_S) if quick else (WARMUP_S, SPAN_S)
    for cell, policy, replicas in [("conv", "static:4", 4)] if quick else cases():
        requests = workload(cell, score[1])
        found, exact = fluid(requests, policy, replicas, score), exactly(requests, policy, replicas, score)
        wide = fluid(requests, policy, replicas, score, bin_s=10.0)
        rows += compared(f"{cell}, {policy}", found, exact, score[1])
        details[f"{cell}, {policy}"] = {
            "fluid": asdict(found), "fluid, bins of 10 s": asdict(wide), "exact": asdict(exact)
        }  # fmt: skip
    return rows, details


def cases() -> Iterator[tuple[str, str, int]]:
    """Workload, policy, and replicas at the start."""
    for cell, counts in STATIC.items():
        yield from ((cell, f"static:{count}", count) for count in counts)
        yield from ((cell, policy, FIRST[cell]) for policy in POLICIES)


def workload(cell: str, span_s: float) -> list[TraceRequest]:
    if cell == "gamma":
        arrivals = mmpp((20.0, 60.0), 450.0, Random(1), cv=3.0)
        return combine(arrivals, resampled(trace("conv")), Random(2), span_s)
    return Cell(cell, {"conv": 6, "code": 10}[cell], span_s).requests()


def fluid(requests: Sequence[TraceRequest], policy: str, replicas: int, score: Score, bin_s: float = 1.0) -> Outcome:
    made = FluidPlan(
        service=scaling_spec(service()),
        speed=REPLICA,
        bins=demand_bins(requests, bin_s, span_s=score[1]),
        replicas=replicas,
        bin_s=bin_s,
        lead_s=LEAD_S,
        lead_spread=StartTimes.of(0.0).spread,
        lengths=length_spread(requests),
        score=score,
        start=EPOCH.timestamp(),
    )
    begun = time.process_time()
    found = run(made, policy_of(policy, {TARGET.pool: made.lead_s}))
    return Outcome(found.attainment, found.gpu_s / 3600, time.process_time() - begun)


def exactly(requests: Sequence[TraceRequest], policy: str, replicas: int, score: Score) -> Outcome:
    begun = time.process_time()
    chosen = policy_of(policy, {TARGET.pool: LEAD_S})
    found = Simulation(plan(requests, chosen, replicas, score=score)).run()
    return Outcome(found.attainment(), sum(found.gpu_s.values()) / 3600, time.process_time() - begun)


def compared(name: str, found: Outcome, exact: Outcome, span_s: float) -> list[Row]:
    """Fluid less exact, without its sign; and the fluid's speed."""
    operated = exact.attainment >= OPERATED
    hours = 100 * abs(found.gpu_hours / exact.gpu_hours - 1)
    points = 100 * abs(found.attainment - exact.attainment)
    return [
        Row(f"{name}: GPU-hours, difference", hours, "%", bar=GPU_HOURS if operated else None),
        Row(f"{name}: attainment, difference", points, "points", bar=ATTAINMENT if operated else None),
        Row(f"{name}: speed", span_s / found.cpu_s, "x", bar=SPEED if name.split()[1].startswith(SIMPLE) else None),
    ]

"""Windows in the fluid model: bins of their requests, runs of a setting, and the work curve that the oracle knows."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace
from functools import lru_cache
from itertools import product

from benchmarks.autoscaling.cells import WARMUP_S, Window
from benchmarks.autoscaling.exact import HOLDS, SCRAPE_LAG_S, SPREAD, first_replicas
from benchmarks.autoscaling.settings import MOST, Setting
from benchmarks.simulator.cells import KV_TOKENS, LEAD_S, LIMITS, STEP_TIME, service

from paceline_autoscaler.model.observation import scaling_spec
from paceline_autoscaler.policies.constant import Constant
from paceline_autoscaler.policies.fluid import run
from paceline_autoscaler.policies.fluid_types import MOMENT_S, DemandBin, FluidPlan, FluidResult
from paceline_autoscaler.policies.replica_policy import BaselinePolicy
from paceline_autoscaler.state import PoolSpeed
from paceline_simulator.bins import demand_bins, length_spread
from paceline_simulator.cluster import EPOCH
from paceline_simulator.oracle import Oracle, needed_replicas
from paceline_simulator.policies import static_replicas
from paceline_simulator.traces import TraceRequest

SPEED = PoolSpeed("main", STEP_TIME, LIMITS.max_seqs, KV_TOKENS)
ORACLE = "oracle"
UNCACHED = " uncached"
"""Ends the labels of choices that know the work as it is without a cache."""
_USABLE = (0.45, 0.55, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9)
_SMOOTH = (1, 3, 6)
_AHEAD = (1.0, 1.3)
"""Leads ahead: starts take up to so much longer than their mean."""


def fluid_plan(
    window: Window, requests: Sequence[TraceRequest], lead_s: float = LEAD_S, times: float = 1.0
) -> FluidPlan:
    """With `times` the requests, and so many more replicas allowed."""
    plan = FluidPlan(
        service=scaling_spec(service(round(MOST * times))),
        speed=SPEED,
        bins=_bins(requests, window.end, times),
        replicas=1,
        lead_s=lead_s,
        lead_spread=SPREAD,
        lengths=length_spread(requests),
        score=(WARMUP_S, window.end),
        start=EPOCH.timestamp(),
        metrics_lag_s=SCRAPE_LAG_S,
    )
    return replace(plan, replicas=first_replicas(requests, times * mean_work_s(plan)))


def _bins(
    requests: Sequence[TraceRequest], span_s: float, times: float, hit_share: float | None = None
) -> list[DemandBin]:
    bins = demand_bins(requests, span_s=span_s, hit_share=hit_share)
    return [DemandBin(*(times * value for value in astuple(each))) for each in bins]


def fluid_run(plan: FluidPlan, setting: Setting) -> FluidResult:
    """A static pool begins with its own number of replicas."""
    policy = setting.made()
    static = static_replicas(policy)
    return run(plan if static is None else replace(plan, replicas=static), policy)


def work_curve(plan: FluidPlan) -> list[float]:
    """Replica-seconds per second that arrive, every MOMENT_S."""
    most = plan.service.pools[0].max
    moments = run(replace(plan, replicas=most), BaselinePolicy(Constant(most))).timeline
    return [moment.demand * moment.ready / moment.capacity if moment.capacity else 0.0 for moment in moments]


def mean_work_s(plan: FluidPlan) -> float:
    """Replica-seconds of a request, on average."""
    arrivals = sum(each.arrivals for each in plan.bins)
    return sum(work_curve(plan)) * MOMENT_S / arrivals if arrivals else 0.0


def oracles(plan: FluidPlan, requests: Sequence[TraceRequest], times: float = 1.0) -> dict[str, Oracle]:
    """The 48 choices of the oracle for this demand, by label; where prompts share prefixes, 48 more.

    Those know the work as it is without a cache. The fluid model's own cache is infinite, and a real one is not.
    """
    curves = {"": work_curve(plan)}
    if any(each.cached_tokens for each in plan.bins):
        uncached = _bins(requests, len(plan.bins) * plan.bin_s, times, hit_share=0.0)
        curves[UNCACHED] = work_curve(replace(plan, bins=uncached))
    return {
        f"usable={usable:g} smooth={smooth} ahead={ahead:g}{cache}": Oracle(
            needed_replicas(work, usable, smooth), plan.start, ahead * plan.lead_s, MOMENT_S
        )
        for (cache, work), usable, smooth, ahead in product(curves.items(), _USABLE, _SMOOTH, _AHEAD)
    }


def ranked(plan: FluidPlan, choices: Mapping[str, Oracle]) -> dict[str, FluidResult]:
    """Runs of the choices that hold in the fluid model, cheapest first; if none does, of all, best attainment first."""
    runs = {label: fluid_run(plan, Setting(ORACLE, label, made)) for label, made in choices.items()}
    holding = [(run.gpu_s, label) for label, run in runs.items() if run.attainment >= HOLDS]
    best = [(-run.attainment, label) for label, run in runs.items()]
    return {label: runs[label] for _, label in sorted(holding or best)}


@lru_cache(maxsize=4)
def requests_of(window: Window, seed: int) -> list[TraceRequest]:
    """The window's requests, drawn once for several runs."""
    return window.requests(seed)

"""What faults cost: our policy on a development window, exactly, with one fault at a time and with none.

The budget is half as much again as the most GPUs of the run without a fault. A flood is of one tenant, and attainment
is that of all others.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from math import ceil
from typing import Final

from benchmarks.autoscaling.cells import WARMUP_S, Window
from benchmarks.autoscaling.development import developments, learned_in_fluid
from benchmarks.autoscaling.exact import run_plan, service_plan
from benchmarks.autoscaling.fluid import fluid_plan, requests_of
from benchmarks.autoscaling.settings import MOST
from benchmarks.autoscaling.store import FOLDER, write
from benchmarks.simulator.cells import LEAD_S

from paceline_core.registry.enums import RequestClass
from paceline_simulator.simulation import ServicePlan, Simulation
from paceline_simulator.traces import TraceRequest

FILE = FOLDER / "faults.json"
CELL, SEED = "m-large", 1
NONE: Final = "none"
_FLOOD: Final = "flood"
_FLOOD_S = 600.0
_OLD_S = 60.0
_SHARE = 1 / 3
_STUCK = 0.5
_LONGER = 0.5


@dataclass(frozen=True, slots=True)
class Outcome:
    """Attainment (0 to 1) of the window's requests, GPU-hours, and the fewest ordered, the most GPUs that existed."""

    attainment: float
    gpu_hours: float
    fewest: int
    most: int


def _older_metrics(window: Window, made: ServicePlan) -> ServicePlan:
    del window
    return replace(made, metrics=replace(made.metrics, lag_s=_OLD_S))


def _gaps(window: Window, made: ServicePlan) -> ServicePlan:
    """No metrics for a tenth of the window, twice."""
    tenth_s = window.seconds / 10
    gaps = tuple((WARMUP_S + part * tenth_s, WARMUP_S + (part + 1) * tenth_s) for part in (3, 6))
    return replace(made, metrics=replace(made.metrics, gaps=gaps))


def _outage(window: Window, made: ServicePlan) -> ServicePlan:
    """A third of the replicas loses its nodes at once, in the middle."""
    (pool,) = made.pools
    return replace(made, pools=(replace(pool, outages=((WARMUP_S + window.seconds / 2, _SHARE),)),))


def _stuck_starts(window: Window, made: ServicePlan) -> ServicePlan:
    """One of two hangs for an hour."""
    del window
    (pool,) = made.pools
    return replace(made, pools=(replace(pool, start=replace(pool.start, stuck_share=_STUCK)),))


def _flood(window: Window, made: ServicePlan) -> ServicePlan:
    """One tenant sends as much as all others together, for ten minutes from the middle on."""
    start_s = WARMUP_S + window.seconds / 2
    own = made.arrivals[RequestClass.INTERACTIVE]
    copied = [replace(one, tenant=_FLOOD) for one in own if start_s <= one.at < start_s + _FLOOD_S]
    arrivals = sorted([*own, *copied], key=lambda one: one.at)
    return replace(made, arrivals={RequestClass.INTERACTIVE: arrivals})


def _longer_answers(window: Window, made: ServicePlan) -> ServicePlan:
    """Answers get longer evenly, at the end by half."""

    def longer(one: TraceRequest) -> TraceRequest:
        passed = max(one.at - WARMUP_S, 0.0) / window.seconds
        return replace(one, output_tokens=round(one.output_tokens * (1 + _LONGER * passed)))

    return replace(made, arrivals={cls: list(map(longer, requests)) for cls, requests in made.arrivals.items()})


FAULTS: Mapping[str, Callable[[Window, ServicePlan], ServicePlan]] = {
    NONE: lambda _, made: made,
    "metrics 60 s old": _older_metrics,
    "no metrics, twice for a tenth of the time": _gaps,
    "a third of the replicas lost at once": _outage,
    "half of the starts stuck": _stuck_starts,
    "one tenant's flood": _flood,
    "answers half as long again by the end": _longer_answers,
}


def suffer(task: tuple[str, int | None]) -> Outcome:
    """A fault by name, within a budget of GPUs if there is one."""
    name, budget = task
    windows = developments()[CELL]
    requests = requests_of(windows.tried, SEED)
    policy = learned_in_fluid(windows.learned, SEED).policy(LEAD_S)
    made = service_plan(requests, policy, fluid_plan(windows.tried, requests).replicas)
    scaling = replace(made.service.scaling, budget_gpus=MOST if budget is None else budget)
    made = FAULTS[name](windows.tried, replace(made, service=replace(made.service, scaling=scaling)))
    return _outcome(windows.tried, made)


def budget_of(without: Outcome) -> int:
    return ceil(1.5 * without.most)


def _outcome(window: Window, made: ServicePlan) -> Outcome:
    result = Simulation(run_plan(window, made, SEED)).run()
    offered = sum(
        WARMUP_S <= one.at < window.end and one.tenant != _FLOOD for one in made.arrivals[RequestClass.INTERACTIVE]
    )
    attained = sum(one.attained for one in result.scored() if one.tenant != _FLOOD)
    existing = [moment.ready + moment.starting + moment.draining for moment in result.timeline]
    return Outcome(
        attainment=round(attained / offered, 5),
        gpu_hours=round(sum(result.gpu_s.values()) / 3600, 4),
        fewest=min(moment.desired for moment in result.timeline),
        most=max(existing),
    )


def save(found: Mapping[str, Outcome]) -> None:
    rows = {name: asdict(outcome) for name, outcome in found.items()}
    write(FILE, {"cell": CELL, "budget": budget_of(found[NONE]), "faults": rows})


def table(found: Mapping[str, Outcome]) -> str:
    """Markdown."""
    without, rows = found[NONE], ["| fault | attainment | points lost | GPU-hours | fewest | most |", "|---" * 6 + "|"]
    for name in FAULTS:
        outcome = found[name]
        lost = 100 * (without.attainment - outcome.attainment)
        rows.append(
            f"| {name} | {100 * outcome.attainment:.2f} % | {lost:.2f} | {outcome.gpu_hours:.2f} "
            f"| {outcome.fewest} | {outcome.most} |"
        )
    return "\n".join([*rows, "", f"The budget is {budget_of(without)} GPUs."])

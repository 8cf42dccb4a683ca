"""Exact runs in processes, as many at once as there are cores. A job names its parts, so any process can begin it."""

import gc
import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import cache
from typing import TypeVar

from benchmarks.autoscaling import exact
from benchmarks.autoscaling.cells import Cell, Window, cells
from benchmarks.autoscaling.digest import digest
from benchmarks.autoscaling.fluid import ORACLE, fluid_plan, oracles, requests_of
from benchmarks.autoscaling.learned import learned
from benchmarks.autoscaling.replayed import Replayed
from benchmarks.autoscaling.settings import Setting, default, settings
from benchmarks.simulator.cells import LEAD_S

from paceline_autoscaler.model.demand_history import DemandHistories
from paceline_simulator.policies import SLO, STATIC, static_replicas

_KNOWN = "conv"
A = TypeVar("A")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Job:
    """A policy's setting, by label, on a window of a cell with a seed; `give_up`: see `exact.run`."""

    cell: str
    window: str
    policy: str
    label: str
    seed: int
    give_up: float = 0.0


@cache
def cell_of(name: str) -> Cell:
    return cells()[name]


def window_of(job: Job) -> Window:
    cell = cell_of(job.cell)
    return next(window for window in (cell.tuned, *cell.scored) if window.name == job.window)


def setting_of(job: Job) -> Setting:
    if job.policy == ORACLE:
        requests = requests_of(window := window_of(job), job.seed)
        return Setting(ORACLE, job.label, oracles(fluid_plan(window, requests), requests)[job.label])
    return named(job.policy, job.label)


def named(policy: str, label: str) -> Setting:
    """A policy's setting with this label."""
    choices = [default(policy)] if label == "default" else settings(policy)
    return next(choice for choice in choices if choice.label == label)


@cache
def decisions_digest(policy: str, label: str) -> str:
    """Of today's decisions; the oracle's and a static pool's are in their labels."""
    if policy in (ORACLE, STATIC):
        return ""
    return _own_digest() if policy == SLO else digest(named(policy, label).made())


def _own_digest() -> str:
    """Of our policy where it knows a cell's past, with the capacities that it found to be needed."""
    ours = learned(_KNOWN).policy(LEAD_S)

    def needed() -> list[float]:
        own = ours.state.own
        return [round(role.latest or 0.0, 3) for role in own.roles] if isinstance(own, DemandHistories) else []

    return digest(ours, needed)


def execute(job: Job) -> exact.RunResult:
    """Its exact run."""
    gc.freeze()
    window, setting = window_of(job), setting_of(job)
    requests = requests_of(window, job.seed)
    policy = Replayed(learned(job.cell).policy(LEAD_S)) if job.policy == SLO else setting.made()
    static = static_replicas(policy)
    replicas = fluid_plan(window, requests).replicas if static is None else static
    result = exact.run(window, requests, policy, job.seed, replicas, give_up=job.give_up)
    return replace(result, replayed=(policy.equal, policy.decisions)) if isinstance(policy, Replayed) else result


def in_processes(function: Callable[[A], R], arguments: Iterable[A]) -> Iterator[tuple[A, R]]:
    """Call a function for each argument, as many at once as there are cores; results come as they end."""
    context = multiprocessing.get_context("forkserver")
    with ProcessPoolExecutor(mp_context=context) as pool:
        running = {pool.submit(function, argument): argument for argument in arguments}
        try:
            for future in as_completed(running):
                yield running[future], future.result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

"""Tuning: every setting in the fluid model on the cell's tuning window, then those that hold there, exactly.

Exact runs go through the settings that hold in the fluid model, cheapest first: the first of four to hold is the tuned
one. Where the fluid model is too hopeful for all four, the rest is halved again and again for the cheapest that holds.
If no setting holds in the fluid model, the one that attains most is tried all the same. A policy without any setting
that holds exactly is not offered for the cell. Our policy has no settings: it learns on the same requests.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from benchmarks.autoscaling.cells import Cell
from benchmarks.autoscaling.exact import HOLDS, run
from benchmarks.autoscaling.fluid import fluid_plan, fluid_run, requests_of
from benchmarks.autoscaling.jobs import Job, cell_of, decisions_digest, execute
from benchmarks.autoscaling.learned import Learned
from benchmarks.autoscaling.settings import Setting, settings
from benchmarks.autoscaling.store import Tuned
from benchmarks.simulator.cells import LEAD_S, TARGET

from paceline_autoscaler.policies.replica_policy import ProductionPolicy, having_started

T = TypeVar("T")
SEED = 1
CANDIDATES = 4


@dataclass(frozen=True, slots=True)
class Trial:
    """A setting in the fluid model."""

    setting: Setting
    attainment: float
    gpu_hours: float


def trials(cell: Cell, policy: str) -> list[Trial]:
    """All settings of a policy, cheapest first."""
    plan = fluid_plan(cell.tuned, requests_of(cell.tuned, SEED))
    found = []
    for setting in settings(policy):
        result = fluid_run(plan, setting)
        found.append(Trial(setting, result.attainment, result.gpu_s / 3600))
    return sorted(found, key=lambda trial: trial.gpu_hours)


def candidates(found: Sequence[Trial]) -> list[Trial]:
    """Trials that hold, cheapest first; if none does, the one that attains most."""
    holding = [trial for trial in found if trial.attainment >= HOLDS]
    return holding or sorted(found, key=lambda trial: -trial.attainment)[:1]


def cheapest(choices: Sequence[T], holds: Callable[[T], bool]) -> T | None:
    """The first of CANDIDATES that holds, of choices in order of their cost; else by halving what follows them, as if
    a dearer choice held whenever a cheaper one does.
    """
    for choice in choices[:CANDIDATES]:
        if holds(choice):
            return choice
    place = bisect_left(choices, True, lo=CANDIDATES, key=holds)
    return choices[place] if place < len(choices) else None


def tune(task: tuple[str, str]) -> Tuned:
    """The tuned setting for a cell and a policy, both by name."""
    cell, policy = cell_of(task[0]), task[1]
    tried: dict[str, tuple[float, float]] = {}

    def holds(setting: Setting) -> bool:
        result = execute(Job(cell.name, cell.tuned.name, policy, setting.label, SEED, give_up=HOLDS))
        tried[setting.label] = (round(result.attainment, 5), round(result.gpu_hours, 4))
        return result.holds

    found = cheapest([trial.setting for trial in candidates(trials(cell, policy))], holds)
    return Tuned("", "", tried) if found is None else Tuned(found.label, decisions_digest(policy, found.label), tried)


def learn(name: str) -> Learned:
    """What our policy has learned by the end of a cell's tuning window."""
    window = cell_of(name).tuned
    requests = requests_of(window, SEED)
    policy = ProductionPolicy(state=having_started({TARGET.pool: LEAD_S}))
    run(window, requests, policy, SEED, fluid_plan(window, requests).replicas)
    return Learned.of(policy)

"""Tuning: every setting in the fluid model on the cell's tuning window, then the cheapest that hold, exactly.

Of the settings that hold there the four with least GPU time are simulated exactly, cheapest first, until one holds:
that is the tuned one. If none does, the policy is not offered for the cell.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.autoscaling.cells import Cell
from benchmarks.autoscaling.exact import HOLDS
from benchmarks.autoscaling.fluid import fluid_plan, fluid_run, requests_of
from benchmarks.autoscaling.jobs import Job, cell_of, decisions_digest, execute
from benchmarks.autoscaling.settings import Setting, settings
from benchmarks.autoscaling.store import Tuned

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
    """The cheapest that hold in the fluid model."""
    return [trial for trial in found if trial.attainment >= HOLDS][:CANDIDATES]


def tune(task: tuple[str, str]) -> Tuned:
    """The tuned setting for a cell and a policy, both by name."""
    cell, policy = cell_of(task[0]), task[1]
    tried: dict[str, tuple[float, float]] = {}
    for trial in candidates(trials(cell, policy)):
        label = trial.setting.label
        result = execute(Job(cell.name, cell.tuned.name, policy, label, SEED, give_up=HOLDS))
        tried[label] = (round(result.attainment, 5), round(result.gpu_hours, 4))
        if result.complete and result.attainment >= HOLDS:
            return Tuned(label, decisions_digest(trial.setting), tried)
    return Tuned("", "", tried)

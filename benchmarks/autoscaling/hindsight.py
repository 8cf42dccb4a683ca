"""What only hindsight knows of a cell: the smallest static pool that holds on it, and the oracle.

Both are chosen on the scored windows with SEED: the fluid model proposes, exact runs decide. A static pool has the same
size on every window of the cell, the oracle its own choice on each. A pool of three times the oracle's most replicas
shows that the promise is feasible: it must attain more than 99.9 %.
"""

from dataclasses import dataclass

from benchmarks.autoscaling.cells import Cell, Window
from benchmarks.autoscaling.exact import HOLDS, RunResult
from benchmarks.autoscaling.fluid import ORACLE, UNCACHED, fluid_plan, fluid_run, oracles, ranked, requests_of
from benchmarks.autoscaling.jobs import Job, cell_of, execute
from benchmarks.autoscaling.settings import MOST, settings
from benchmarks.autoscaling.store import RunRow
from benchmarks.autoscaling.tune import cheapest

from paceline_simulator.oracle import Oracle
from paceline_simulator.policies import STATIC

SEED = 1
HINDSIGHT = "static in hindsight"
LARGE = "three times the oracle"


@dataclass(frozen=True, slots=True)
class Found:
    """A choice and its runs, one a window."""

    policy: str
    rows: tuple[RunRow, ...]


def static(name: str) -> Found:
    """The smallest pool that holds; from what the fluid model proposes down while it holds, else up."""
    cell = cell_of(name)
    plans = [fluid_plan(window, requests_of(window, SEED)) for window in cell.scored]
    holding = [
        place + 1
        for place, setting in enumerate(settings(STATIC))
        if all(fluid_run(plan, setting).attainment >= HOLDS for plan in plans)
    ]
    count = min(holding, default=MOST)
    found = _pool(cell, count)
    while found is None and count < MOST:
        count += 1
        found = _pool(cell, count)
    while found is not None and count > 1 and (smaller := _pool(cell, count - 1)) is not None:
        found, count = smaller, count - 1
    return Found(HINDSIGHT, () if found is None else _rows(HINDSIGHT, f"replicas={count}", found))


def oracle(name: str) -> Found:
    """On each window the cheapest choice that holds; no row where none does."""
    cell = cell_of(name)
    found = [_cheapest_oracle(cell, window) for window in cell.scored]
    return Found(ORACLE, tuple(row for row in found if row is not None))


def _cheapest_oracle(cell: Cell, window: Window) -> RunRow | None:
    """Choices that know of caches are searched apart from the others, since a dearer one of those need not hold."""
    runs: dict[str, RunResult] = {}

    def holds(label: str) -> bool:
        runs[label] = execute(Job(cell.name, window.name, ORACLE, label, SEED, give_up=HOLDS))
        return runs[label].holds

    proposed = _proposed(window)
    parts = [[label for label in proposed if label.endswith(UNCACHED) == uncached] for uncached in (False, True)]
    found = [label for part in parts if (label := cheapest(part, holds)) is not None]
    best = min(found, key=lambda label: runs[label].gpu_hours, default=None)
    return None if best is None else _row(ORACLE, best, window.name, runs[best])


def large(name: str) -> Found:
    """A pool of three times the most replicas that the oracle's proposal has."""
    cell, rows = cell_of(name), []
    for window in cell.scored:
        proposed = next(iter(_proposed(window).values()))
        count = min(3 * max(proposed.needs), MOST)
        result = execute(Job(cell.name, window.name, STATIC, f"replicas={count}", SEED))
        rows.append(_row(LARGE, f"replicas={count}", window.name, result))
    return Found(LARGE, tuple(rows))


KINDS = {ORACLE: oracle, HINDSIGHT: static, LARGE: large}


def look_back(task: tuple[str, str]) -> Found:
    """One of KINDS for a cell, both by name."""
    kind, name = task
    return KINDS[kind](name)


def _proposed(window: Window) -> dict[str, Oracle]:
    """By label the choices that hold in the fluid model, cheapest first; if none does, all, best attainment first."""
    requests = requests_of(window, SEED)
    plan = fluid_plan(window, requests)
    choices = oracles(plan, requests)
    return {label: choices[label] for label in ranked(plan, choices)}


def _pool(cell: Cell, count: int) -> list[tuple[Window, RunResult]] | None:
    """Its run on each window; None as soon as it does not hold on one."""
    found = []
    for window in cell.scored:
        result = execute(Job(cell.name, window.name, STATIC, f"replicas={count}", SEED, give_up=HOLDS))
        if not result.holds:
            return None
        found.append((window, result))
    return found


def _rows(policy: str, label: str, found: list[tuple[Window, RunResult]]) -> tuple[RunRow, ...]:
    return tuple(_row(policy, label, window.name, result) for window, result in found)


def _row(policy: str, label: str, window: str, result: RunResult) -> RunRow:
    return RunRow(policy, label, "", window, SEED, result.json())

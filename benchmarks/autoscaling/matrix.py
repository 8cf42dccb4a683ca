"""The exact matrix: which runs a cell needs, and doing those that are missing.

Ours and the tuned static pool have five seeds, the five best tuned rivals three; what hindsight alone knows has one
(`hindsight`). A seed sets arrivals, phases, lengths, starts and routing.
"""

from collections.abc import Iterator, Sequence

from benchmarks.autoscaling.cells import Cell
from benchmarks.autoscaling.exact import RunResult
from benchmarks.autoscaling.jobs import Job, decisions_digest, execute, in_processes
from benchmarks.autoscaling.store import CellFile, RunRow, Tuned

from paceline_simulator.policies import SLO, STATIC

SEEDS = {SLO: 5, STATIC: 5}
RIVAL_SEEDS = 3
RIVALS = 5
"""Rivals that are simulated exactly: those that hold the most cells when tuned, then the cheapest."""


def best_rivals(files: Sequence[CellFile]) -> list[str]:
    """By what tuning found on the tuning windows, over all cells."""
    names = {name for file in files for name in file.tuned} - {SLO, STATIC}

    def rank(name: str) -> tuple[int, float]:
        offered = [file.tuned[name] for file in files if name in file.tuned and file.tuned[name].label]
        return -len(offered), sum(_cost_over_static(file, name) for file in files) / max(len(offered), 1)

    return sorted(names, key=lambda name: (rank(name), name))[:RIVALS]


def _cost_over_static(file: CellFile, name: str) -> float:
    """GPU-hours on the tuning window over those of the tuned static pool; 0 where either is not offered."""
    costs = [_cost(file.tuned.get(each)) for each in (name, STATIC)]
    return costs[0] / costs[1] if all(costs) else 0.0


def _cost(tuned: Tuned | None) -> float:
    return tuned.tried[tuned.label][1] if tuned is not None and tuned.label else 0.0


def jobs(cell: Cell, file: CellFile, rivals: Sequence[str]) -> Iterator[Job]:
    """The runs of tuned settings, ours first, seed by seed."""
    offered = {name: file.tuned[name].label for name in (STATIC, *rivals) if name in file.tuned}
    labels = {SLO: "default", **{name: label for name, label in offered.items() if label}}
    for seed in range(1, max(SEEDS.values()) + 1):
        for window in cell.scored:
            for name, label in labels.items():
                if seed <= SEEDS.get(name, RIVAL_SEEDS):
                    yield Job(cell.name, window.name, name, label, seed)


def missing(file: CellFile, wanted: Iterator[Job]) -> list[Job]:
    """Those that have not been run with today's decisions."""
    return [job for job in wanted if not file.has(_key(job), decisions_digest(job.policy, job.label))]


def do(cell: Cell, file: CellFile, wanted: Sequence[Job]) -> None:
    """Run jobs and keep each result as it ends."""
    for job, result in in_processes(execute, wanted):
        _keep(file, job, result)
        print(f"{cell.name} {job.window} {job.policy} {job.label} seed {job.seed}: {_words(result)}", flush=True)


def _keep(file: CellFile, job: Job, result: RunResult) -> None:
    digest = decisions_digest(job.policy, job.label)
    file.add(RunRow(job.policy, job.label, digest, job.window, job.seed, result.json()))


def _key(job: Job) -> tuple[str, str, str, int]:
    return job.policy, job.label, job.window, job.seed


def _words(result: RunResult) -> str:
    ended = "" if result.complete else ", given up"
    return f"{100 * result.attainment:.2f} % at {result.gpu_hours:.2f} GPU-hours in {result.cpu_s:.0f} s{ended}"

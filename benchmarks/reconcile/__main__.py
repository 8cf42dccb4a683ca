"""What reconciling costs: the operator beside a bare client that makes the same children, alternating, median of three.

A thousand services (quick: a hundred) in ten namespaces, two thousand fake pods on ten KWOK nodes, a fresh cluster for
each run; controller-manager, scheduler and operator run with raised client limits, else these are what is measured. On
the last operator run's cluster follow restart, two quiet minutes, a storm of readiness changes and spec edits; one more
run kills the operator half-way.

`--beside ../other [--pairs 10]` compares the operator of this checkout with that of another one instead: turn by turn
in a fresh cluster with the checkout's own definitions, the first of a pair being the other one each time.
"""

import argparse
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from benchmarks.harness import ROOT, Bar, Measured, Row, median_row, report
from benchmarks.reconcile.population import NAMESPACES
from benchmarks.reconcile.stage import Phase, Stage, resident_mb, staged

from paceline_core.clock import SystemClock

COUNT, QUICK_COUNT = 1000, 100
RUNS, QUICK_RUNS = 3, 1
QUIET_S, QUICK_QUIET_S = 120.0, 30.0
_clock = SystemClock()


def measure(quick: bool) -> Measured:
    """All runs and their rows."""
    count, runs = (QUICK_COUNT, QUICK_RUNS) if quick else (COUNT, RUNS)
    pairs: list[tuple[Phase, Phase]] = []
    rows: list[Row] = []
    for number in range(runs):
        bare = _bare(count)
        with staged() as stage:
            operator = stage.start_operator()
            made = stage.phase("create", count)
            pairs.append((bare, made))
            if number == runs - 1:
                rows += list(_operator_rows(stage, count, resident_mb(operator)))
                rows += list(_later(stage, count, QUICK_QUIET_S if quick else QUIET_S))
    rows = [*_beside_bare(pairs), *rows, *_killed(count)]
    return rows, {"count": count, "pairs": [[_row(bare), _row(made)] for bare, made in pairs]}


def _bare(count: int) -> Phase:
    with staged() as stage:
        return stage.phase("bare", count)


def _beside_bare(pairs: list[tuple[Phase, Phase]]) -> Iterator[Row]:
    cpu = sorted(made.total / bare.total for bare, made in pairs)
    wall = sorted(made.report["ready_s"] / bare.report["ready_s"] for bare, made in pairs)
    yield median_row("CPU of all processes, to the bare client", cpu, "ratio", Bar(1.15))
    yield median_row("wall until ready, to the bare client", wall, "ratio", Bar(1.2))
    yield median_row("CPU of all processes", [made.total for _, made in pairs], "s")
    yield median_row("CPU of all processes, bare client", [bare.total for bare, _ in pairs], "s")
    yield median_row("wall until ready", [made.report["ready_s"] for _, made in pairs], "s")
    yield median_row("wall until ready, bare client", [bare.report["ready_s"] for bare, _ in pairs], "s")
    yield median_row("CPU of the operator", [made.cpu["paceline-operator"] for _, made in pairs], "s", Bar(10.0))


def _operator_rows(stage: Stage, count: int, resident: float) -> Iterator[Row]:
    yield Row("write requests of the operator for each service", stage.writes() / count, "requests", bar=Bar(6.5))
    yield Row("resident memory of the operator", resident, "MB", bar=Bar(150.0))


def _later(stage: Stage, count: int, quiet_s: float) -> Iterator[Row]:
    """On a converged cluster."""
    _settle(stage)
    yield from _restarted(stage)
    mark = stage.mark()
    time.sleep(quiet_s)
    yield Row(f"writes in {quiet_s:.0f} quiet seconds", stage.writes(mark), "requests", bar=Bar(0))
    manager = stage.machine.parts["kube-controller-manager"]
    manager.stop()
    storm = stage.phase("storm", count).report
    manager.start()
    stage.phase("finish", count)
    yield Row("readiness changes reflected after the last", storm["after_last_s"], "s", bar=Bar(3.0))
    delays = stage.phase("edits", count).report["delays_s"]
    yield Row("spec edit to Deployment, p50", quantiles(delays, n=100)[49], "s")
    yield Row("spec edit to Deployment, p99", quantiles(delays, n=100)[98], "s", bar=Bar(1.0))


def _restarted(stage: Stage) -> Iterator[Row]:
    began = _clock.monotonic()
    stage.machine.parts["paceline-operator"].stop()
    yield Row("SIGTERM to exit", _clock.monotonic() - began, "s")
    mark, began = stage.mark(), _clock.monotonic()
    operator = stage.start_operator()
    yield Row("restart on the converged set, in sync", _clock.monotonic() - began, "s", bar=Bar(5.0))
    time.sleep(10.0)
    yield Row("writes of the restart", stage.writes(mark), "requests", bar=Bar(0))
    yield Row("resident memory after the restart", resident_mb(operator), "MB", bar=Bar(150.0))


def _killed(count: int) -> Iterator[Row]:
    """SIGKILL when about half of the Deployments exist."""
    with staged() as stage:
        stage.start_operator()
        stage.phase("create_half", count)
        stage.machine.parts["paceline-operator"].stop(signal.SIGKILL)
        stage.start_operator()
        stage.phase("finish", count)
        found = stage.children()
    wanted = {"deployments": count, "services": count, "poddisruptionbudgets": count}
    wrong = sum(abs(found[kind] - number) for kind, number in wanted.items())
    wrong += abs(found["serviceaccounts"] - NAMESPACES)
    yield Row("children missing or too many after SIGKILL half-way", wrong, "objects", bar=Bar(0))


def _settle(stage: Stage) -> None:
    """Until the operator has written nothing for ten seconds; at most ten times that."""
    for _ in range(10):
        mark = stage.mark()
        time.sleep(10.0)
        if not stage.writes(mark):
            return


def _row(phase: Phase) -> dict[str, Any]:
    return {"report": phase.report, "cpu": {name: round(used, 2) for name, used in phase.cpu.items()}}


def beside(other: Path, pairs: int, count: int) -> Measured:
    """The operators of two checkouts: medians of both, and the median ratio of the pairs."""
    ours: list[Phase] = []
    theirs: list[Phase] = []
    for number in range(pairs):
        for root, phases in ((ROOT, ours), (other, theirs))[:: 1 if number % 2 else -1]:
            with staged(root) as stage:
                stage.start_operator()
                phases.append(stage.phase("create", count))
    values: dict[str, Callable[[Phase], float]] = {
        "CPU of the operator": lambda phase: phase.cpu["paceline-operator"],
        "CPU of all processes": lambda phase: phase.total,
        "wall until ready": lambda phase: float(phase.report["ready_s"]),
    }
    rows: list[Row] = []
    for name, value in values.items():
        mine, peer = ([value(phase) for phase in side] for side in (ours, theirs))
        rows.append(median_row(name, mine, "s", peer=median(peer)))
        ratios = [one / another for one, another in zip(mine, peer, strict=True)]
        rows.append(median_row(f"{name}, of a pair", ratios, "ratio", Bar(1.02)))
    return rows, {"count": count, "pairs": pairs}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.reconcile")
    parser.add_argument("--quick", action="store_true", help="fewer repetitions and shorter runs")
    parser.add_argument("--beside", type=Path, help="another checkout, with a .venv of its own")
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--count", type=int, default=QUICK_COUNT, help="services of a turn (default: %(default)s)")
    asked = parser.parse_args()
    if asked.beside:
        report("reconcile_beside", lambda: beside(asked.beside.resolve(), asked.pairs, asked.count), _clock)
    report("reconcile", lambda: measure(asked.quick), _clock, ".quick" if asked.quick else "")

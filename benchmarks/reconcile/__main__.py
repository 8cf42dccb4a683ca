"""What reconciling costs: the operator beside a bare client that makes the same children, alternating, median of three.

A thousand services (quick: a hundred) in ten namespaces, two thousand fake pods on ten KWOK nodes, a fresh cluster for
each run; controller-manager, scheduler and operator run with raised client limits, else these are what is measured. On
the last operator run's cluster follow restart, two quiet minutes, a storm of readiness changes and spec edits; one more
run kills the operator half-way.
"""

import signal
import time
from collections.abc import Iterator
from statistics import quantiles
from typing import Any

from benchmarks.harness import Bar, Measured, Row, main, median_row
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
        floor = _floor(count)
        with staged() as stage:
            operator = stage.start_operator()
            made = stage.phase("create", count)
            pairs.append((floor, made))
            if number == runs - 1:
                rows += list(_operator_rows(stage, count, resident_mb(operator)))
                rows += list(_later(stage, count, QUICK_QUIET_S if quick else QUIET_S))
    rows = [*_against_floor(pairs), *rows, *_killed(count)]
    return rows, {"count": count, "pairs": [[_told(floor), _told(made)] for floor, made in pairs]}


def _floor(count: int) -> Phase:
    with staged() as stage:
        return stage.phase("floor", count)


def _against_floor(pairs: list[tuple[Phase, Phase]]) -> Iterator[Row]:
    cpu = sorted(made.total / floor.total for floor, made in pairs)
    wall = sorted(made.report["ready_s"] / floor.report["ready_s"] for floor, made in pairs)
    yield median_row("CPU of all processes, to the floor", cpu, "ratio", Bar(1.15))
    yield median_row("wall until ready, to the floor", wall, "ratio", Bar(1.2))
    yield median_row("CPU of all processes", [made.total for _, made in pairs], "s")
    yield median_row("CPU of all processes, floor", [floor.total for floor, _ in pairs], "s")
    yield median_row("wall until ready", [made.report["ready_s"] for _, made in pairs], "s")
    yield median_row("wall until ready, floor", [floor.report["ready_s"] for floor, _ in pairs], "s")
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


def _told(phase: Phase) -> dict[str, Any]:
    return {"report": phase.report, "cpu": {name: round(used, 2) for name, used in phase.cpu.items()}}


if __name__ == "__main__":
    main("reconcile", measure)

"""Autoscalers compared on nine workloads, in the exact simulator: `python -m benchmarks.autoscaling COMMAND`.

    room       the oracle and the static pool in hindsight of each cell: what there is to gain
    tune       each baseline's setting for each cell
    learn      what our autoscaler learns on the window that baselines are tuned on (`learned`)
    library    the histories that it ships with, from what was learned
    run        the missing runs of the matrix, with tuned settings
    whatif     the cell in the fluid model, at other leads and with more requests
    ablations  what each part of our policy earns, in the fluid model, on windows that nobody is scored on
    faults     what late and lost signals, lost and stuck replicas, a flood and longer answers cost, exactly
    misjudged  what an engine model costs that is wrong by a fifth
    two-pools  what two pools cost, beside the best pair of counts
    valleys    GPU time for each token where offline work fills valleys
    report     the table of all runs that are not void, and benchmarks/results/autoscaling.json

Each result is saved as it ends (`store`), so a command that is interrupted goes on where it was; all take hours.
PACELINE_TRACES names the folder of the whole traces.
"""

import argparse
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.autoscaling import ablations, faults, hindsight, matrix, misjudged, two_pools, valleys, whatif
from benchmarks.autoscaling.cells import cells
from benchmarks.autoscaling.jobs import cell_of, decisions_digest, in_processes
from benchmarks.autoscaling.learned import keep, library
from benchmarks.autoscaling.report import (
    CellReport,
    as_json,
    cell_report,
    error_table,
    fluid_errors,
    fluid_report,
    table,
)
from benchmarks.autoscaling.settings import POLICIES
from benchmarks.autoscaling.store import CellFile, FluidRow, RunRow
from benchmarks.autoscaling.tune import learn, tune
from benchmarks.harness import RESULTS, document
from pydantic import TypeAdapter

from paceline_autoscaler.model import demand_library
from paceline_autoscaler.model.work_history import WorkHistory
from paceline_core.clock import SystemClock, rfc3339
from paceline_simulator.policies import SLO, STATIC

A = TypeVar("A")
R = TypeVar("R")


def room(names: Sequence[str]) -> None:
    files = {name: CellFile.load(name) for name in names}
    tasks = [
        (policy, name)
        for name in names
        for policy in hindsight.KINDS
        if all(key[0] != policy for key in files[name].runs)
    ]
    for (policy, name), found in in_processes(hindsight.look_back, tasks):
        for row in found.rows:
            files[name].add(row)
        words = ", ".join(f"{r.label} {100 * r.result['attainment']:.2f} %" for r in found.rows) or "none holds"
        print(f"{name} {policy}: {words}", flush=True)


def tune_all(names: Sequence[str], policies: Iterable[str]) -> None:
    files = {name: CellFile.load(name) for name in names}
    tasks = [
        (name, policy) for policy in policies for name in names if policy != SLO and policy not in files[name].tuned
    ]
    for (name, policy), tuned in in_processes(tune, tasks):
        files[name].tuned[policy] = tuned
        files[name].save()
        print(f"{name} {policy}: {tuned.label or 'none holds'} {tuned.tried}", flush=True)


def learn_all(names: Sequence[str]) -> None:
    for name, learned in in_processes(learn, names):
        keep({name: learned})
        bins = {role: history.known for role, history in learned.knowledge.histories}
        print(f"{name}: {bins} known bins", flush=True)


def write_library() -> None:
    path = Path(demand_library.__file__).with_suffix(".json")
    path.write_bytes(TypeAdapter(WorkHistory).dump_json(library(), indent=1) + b"\n")


def run(names: Sequence[str]) -> None:
    rivals = matrix.best_rivals([CellFile.load(name) for name in cells()])
    print(f"rivals: {', '.join(rivals)}", flush=True)
    for name in names:
        file = CellFile.load(name)
        matrix.do(cell_of(name), file, matrix.missing(file, matrix.jobs(cell_of(name), file, rivals)))


def look_at_variants(names: Sequence[str]) -> None:
    files = {name: CellFile.load(name) for name in names}
    tasks = [
        (name, variant)
        for name, variant in product(names, whatif.VARIANTS)
        if not any(row.variant == variant and _current(row) for row in files[name].fluid)
    ]
    for (name, variant), rows in in_processes(whatif.look, tasks):
        files[name].fluid = [row for row in files[name].fluid if row.variant != variant] + rows
        files[name].save()
        print(f"{name} {variant}: {len(rows)} rows", flush=True)


def ablate(names: Sequence[str]) -> None:
    found = {}
    for task, outcomes in in_processes(ablations.ablate, [(name, seed) for name in names for seed in ablations.SEEDS]):
        found[task] = outcomes
        print(f"{task[0]} seed {task[1]}", flush=True)
    ordered = {(name, seed): found[name, seed] for name in names for seed in ablations.SEEDS}
    ablations.save(ordered)
    print(ablations.table(ordered))


def suffer() -> None:
    found = {faults.NONE: faults.suffer((faults.NONE, None))}
    budget = faults.budget_of(found[faults.NONE])
    tasks = [(name, budget) for name in faults.FAULTS if name != faults.NONE]
    for (name, _), outcome in in_processes(faults.suffer, tasks):
        found[name] = outcome
        print(f"{name}: {100 * outcome.attainment:.2f} %", flush=True)
    faults.save(found)
    print(faults.table(found))


def measure(
    function: Callable[[A], R], tasks: Sequence[A], save: Callable[[list[R]], None], table: Callable[[list[R]], str]
) -> None:
    """Run tasks in processes; save and print their results in the order of the tasks."""
    found = dict(in_processes(function, tasks))
    ordered = [found[task] for task in tasks]
    save(ordered)
    print(table(ordered))


def report() -> None:
    started = rfc3339(SystemClock().utc())
    files = [CellFile.load(name) for name in cells()]
    data = document("autoscaling", [], started, quick=False)
    data["cells"] = _printed([cell_report(file, _current) for file in files])
    fluid = {variant: [_fluid(file, variant) for file in files] for variant in whatif.VARIANTS}
    for variant, reports in fluid.items():
        print(f"\nIn the fluid model, {variant}:\n")
        data[f"fluid, {variant}"] = _printed(reports)
    exact = [cell_report(file, _same_seed) for file in files]
    errors = {one.name: fluid_errors(one, other) for one, other in zip(fluid[whatif.AS_IT_IS], exact, strict=True)}
    print(f"\nThe fluid model less the exact simulator, GPU time and points of attainment:\n\n{error_table(errors)}")
    data["fluid less exact"] = {
        name: {policy: asdict(error) for policy, error in found.items()} for name, found in errors.items()
    }
    (RESULTS / "autoscaling.json").write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n")


def _printed(reports: Sequence[CellReport]) -> list[dict[str, Any]]:
    """Print their table: today's policy and the static pool first, what only hindsight knows last."""
    known = {policy for each in reports for policy in each.outcomes}
    first, last = (SLO, whatif.OLD_SIGNALS, STATIC), tuple(hindsight.KINDS)
    shown = [*first, *sorted(known - {*first, *last}), *last]
    print(table(reports, [policy for policy in shown if policy in known]))
    return [as_json(each) for each in reports]


def _fluid(file: CellFile, variant: str) -> CellReport:
    return fluid_report(file.name, [row for row in file.fluid if row.variant == variant and _current(row)])


def _same_seed(row: RunRow) -> bool:
    """Whether the fluid model has the same requests."""
    return row.seed == hindsight.SEED and _current(row)


def _current(row: RunRow | FluidRow) -> bool:
    """Whether its decisions are today's."""
    if row.policy in hindsight.KINDS:
        return True
    policy = SLO if row.policy == whatif.OLD_SIGNALS else row.policy
    return row.digest == decisions_digest(policy, row.label)


def commands(names: Sequence[str], policies: Sequence[str]) -> dict[str, Callable[[], None]]:
    """For these cells, and for these policies in `tune`."""
    return {
        "room": partial(room, names),
        "tune": partial(tune_all, names, policies),
        "learn": partial(learn_all, names),
        "library": write_library,
        "run": partial(run, names),
        "whatif": partial(look_at_variants, names),
        "ablations": partial(ablate, names),
        "faults": suffer,
        "misjudged": lambda: measure(misjudged.misjudge, misjudged.tasks(names), misjudged.save, misjudged.table),
        "two-pools": lambda: measure(two_pools.compare, two_pools.RATES, two_pools.save, two_pools.table),
        "valleys": lambda: measure(valleys.fill, valleys.tasks(), valleys.save, valleys.table),
        "report": report,
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.autoscaling")
    parser.add_argument("command", choices=commands((), ()))
    parser.add_argument("--cells", help="names with commas; all by default")
    parser.add_argument("--policies", help="names with commas, for tune; all by default")
    options = parser.parse_args()
    names = options.cells.split(",") if options.cells else list(cells())
    if unknown := set(names) - set(cells()):
        parser.error(f"no cell is called {', '.join(sorted(unknown))}; there are {', '.join(cells())}")
    commands(names, options.policies.split(",") if options.policies else POLICIES)[options.command]()


if __name__ == "__main__":
    main()

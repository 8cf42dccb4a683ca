"""How autoscalers compare on nine workloads, in the exact simulator: `python -m benchmarks.autoscaling COMMAND`.

    room     the oracle and the static pool in hindsight of each cell: what there is to gain
    tune     each baseline's setting for each cell
    run      the missing runs of the matrix, with tuned settings
    report   the table of all runs that are not void, and benchmarks/results/autoscaling.json

Each result is saved as it ends (`store`), so a command that is interrupted goes on where it was; all take hours.
PACELINE_TRACES names the folder of the whole traces.
"""

import argparse
import json
from collections.abc import Iterable, Sequence

from benchmarks.autoscaling import hindsight, matrix
from benchmarks.autoscaling.cells import cells
from benchmarks.autoscaling.jobs import Job, cell_of, decisions_digest, in_processes, setting_of
from benchmarks.autoscaling.report import as_json, cell_report, table
from benchmarks.autoscaling.settings import POLICIES
from benchmarks.autoscaling.store import CellFile, RunRow
from benchmarks.autoscaling.tune import tune
from benchmarks.harness import RESULTS, document

from paceline_core.clock import SystemClock, rfc3339
from paceline_simulator.policies import SLO, STATIC


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


def run(names: Sequence[str]) -> None:
    rivals = matrix.best_rivals([CellFile.load(name) for name in cells()])
    print(f"rivals: {', '.join(rivals)}", flush=True)
    for name in names:
        file = CellFile.load(name)
        matrix.do(cell_of(name), file, matrix.missing(file, matrix.jobs(cell_of(name), file, rivals)))


def report() -> None:
    started = rfc3339(SystemClock().utc())
    reports = [cell_report(CellFile.load(name), _current) for name in cells()]
    shown = [
        SLO,
        STATIC,
        *sorted({p for r in reports for p in r.outcomes} - {SLO, STATIC, *hindsight.KINDS}),
        *hindsight.KINDS,
    ]
    print(table(reports, shown))
    data = document("autoscaling", [], started, quick=False) | {"cells": [as_json(each) for each in reports]}
    (RESULTS / "autoscaling.json").write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n")


def _current(row: RunRow) -> bool:
    if row.policy in hindsight.KINDS:
        return True
    job = Job("", row.window, row.policy, row.label, row.seed)
    return row.digest == decisions_digest(setting_of(job))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.autoscaling")
    parser.add_argument("command", choices=("room", "tune", "run", "report"))
    parser.add_argument("--cells", help="names with commas; all by default")
    parser.add_argument("--policies", help="names with commas, for tune; all by default")
    options = parser.parse_args()
    names = options.cells.split(",") if options.cells else list(cells())
    if unknown := set(names) - set(cells()):
        parser.error(f"no cell is called {', '.join(sorted(unknown))}; there are {', '.join(cells())}")
    if options.command == "room":
        room(names)
    elif options.command == "tune":
        tune_all(names, options.policies.split(",") if options.policies else POLICIES)
    elif options.command == "run":
        run(names)
    else:
        report()


if __name__ == "__main__":
    main()

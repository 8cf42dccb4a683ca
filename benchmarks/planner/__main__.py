"""The planner against the exact simulator, and against published measurements.

`grid`: the error of the goodput formula over services, lengths and replicas, in percent of the simulated goodput
(`cells`). `logs`: the planner's step times in logs of vLLM 0.19, and in Splitwise's profile (`logs`); nothing is fitted
to them here, though four efficiencies were (`planner.accelerators`), so these rows have no bar.
"""

import argparse
from collections.abc import Iterator
from typing import Any, NoReturn

from benchmarks.harness import Bar, Measured, Row, report_parts
from benchmarks.planner import logs
from benchmarks.planner.cells import Cell, grid, simulated_goodput

from paceline_core.clock import SystemClock

ERROR = Bar(10.0)
REQUESTS = 2000


def parts(quick: bool) -> Iterator[Measured]:
    details: dict[str, Any] = {}
    errors = []
    for cell in grid(quick):
        row, details[cell.name] = _compared(cell, REQUESTS // (2 if quick else 1))
        if not cell.tight:
            errors.append(row.value)
        yield [row], details
    yield [Row("goodput: mean of the errors with a bar", sum(errors) / len(errors), "%")], details
    for rows, found in logs.parts(quick):
        details |= found
        yield rows, details


def _compared(cell: Cell, requests: int) -> tuple[Row, dict[str, Any]]:
    """The absolute error; details have the sign."""
    pool = cell.pool
    said = pool.goodput()
    found, runs = simulated_goodput(cell, said, requests)
    error = 100 * (said / found - 1)
    tight = "; TTFT near that of an idle replica" if cell.tight else ""
    row = Row(f"goodput error: {cell.name}{tight}", abs(error), "%", bar=None if cell.tight else ERROR)
    facts = {"formula": said, "simulated": found, "error": error, "usable": found / pool.sustainable}
    return row, {**facts, "limit": pool.engine.bound(pool.mix), "runs": runs}


def main() -> NoReturn:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planner")
    parser.add_argument("--quick", action="store_true", help="every fifth service, one log")
    quick = parser.parse_args().quick
    report_parts("planner", parts(quick), SystemClock(), ".quick" if quick else "")


if __name__ == "__main__":
    main()

"""What each kernel becomes on sm_90, without a GPU: registers, spills, shared memory, programs that fit.

`python -m benchmarks.kernels.compiled [--only NAME ...] [--json]` prints a table, and exits with 1 where a kernel
spills or cannot run. `tests/kernels/test_compiled.py` judges the same. How fast it is, only a GPU can say.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.harness import PLAIN_WIDTH
from benchmarks.kernels.cases import CASES, Case
from benchmarks.kernels.machine_code import INSTRUCTIONS, Taken, instructions, takes
from benchmarks.kernels.standin import SHARED_LIMIT, StandIn, stand_in
from rich.console import Console
from rich.table import Table
from triton.errors import TritonError

WATCHED = ("decode_kernel", "prefill_kernel")
"""Kernels that are as slow as plain code when the compiler leaves out what they were written for."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """One kernel of one case, what it takes and holds, or why none came of it."""

    case: Case
    kernel: str = ""
    stages: int = 0
    taken: Taken | None = None
    instructions: dict[str, int] | None = None
    error: str = ""

    @property
    def fault(self) -> str:
        """Why it must not be launched so, "" if it may."""
        if self.taken is None:
            return self.error
        if self.taken.spilled > self.case.spilled:
            return f"{self.taken.spilled} bytes of registers spilled"
        if self.taken.shared > SHARED_LIMIT:
            return f"{self.taken.shared} bytes of shared memory; {SHARED_LIMIT} are there"
        if self.taken.programs < (counted := self.case.resident.get(self.kernel, 1)):
            return f"{self.taken.programs} programs fit on a multiprocessor, not {counted}"
        return ""

    def json(self) -> dict[str, Any]:
        """As it is written."""
        taken = None if self.taken is None else asdict(self.taken)
        return {
            "case": self.case.name,
            "kernel": self.kernel,
            "taken": taken,
            "instructions": self.instructions,
            "fault": self.fault,
        }


def compiled(cases: Iterable[Case], device: StandIn, *, brief: bool) -> Iterator[Compiled]:
    """Call each launch and judge what Triton would have loaded for it.

    `brief`: only the first kernel of each name in WATCHED is looked into for its instructions.
    """
    watched = set(WATCHED)
    for case in cases:
        begin = len(device.loaded)
        try:
            case.call()
        except TritonError as error:
            yield Compiled(case, error=f"does not compile: {error}")
        for loaded in device.loaded[begin:]:
            found = instructions(loaded) if not brief or loaded.kernel in watched else None
            watched.discard(loaded.kernel)
            yield Compiled(case, loaded.kernel, loaded.stages, takes(loaded), found)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernels.compiled")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="cases whose name contains one of these")
    parser.add_argument("--json", action="store_true", help="one object a line, instructions of the two that attend")
    chosen = parser.parse_args()
    if os.environ.get("TRITON_INTERPRET", "0") not in {"", "0"}:
        parser.error("TRITON_INTERPRET is set, and the interpreter compiles nothing: unset it")
    for part in chosen.only or ():
        if not any(part in case.name for case in CASES):
            parser.error(f"--only {part}: no case has it in its name: {'; '.join(case.name for case in CASES)}")
    cases = [case for case in CASES if not chosen.only or any(part in case.name for part in chosen.only)]
    try:
        rows = list(compiled(cases, stand_in(), brief=chosen.json))
    except OSError as error:
        where = f"{error.filename} cannot be used: {error.strerror}"
        parser.error(f"{where}; let TRITON_CACHE_DIR name a folder for compiled kernels that can be written")
    if chosen.json:
        print("\n".join(json.dumps(row.json()) for row in rows))
    else:
        _print(rows)
    sys.exit(any(row.fault for row in rows))


def _print(rows: Sequence[Compiled]) -> None:
    table = Table(title="compiled for sm_90")
    heads = ("case", "kernel", "registers", "spilled", "shared KB", "warps", "stages", "programs", *INSTRUCTIONS)
    for head in heads:
        table.add_column(head, justify="left" if head in {"case", "kernel"} else "right")
    for row in rows:
        if (taken := row.taken) is None:
            continue
        numbers = (taken.registers, taken.spilled, round(taken.shared / 1024, 1), taken.warps, row.stages)
        counts = (row.instructions or {}).values()
        table.add_row(row.case.name, row.kernel, *map(str, (*numbers, taken.programs, *counts)))
    console = Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH + 40)
    console.print(table)
    for row in rows:
        if row.fault:
            console.print(f"{row.case.name}: {row.fault}", markup=False)


if __name__ == "__main__":
    main()

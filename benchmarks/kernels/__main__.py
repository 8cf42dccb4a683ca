"""The kernels against the limits of the GPU that they run on, and against others on the same data.

`python -m benchmarks.kernels [--quick] [--only PART ...]` needs a machine with CUDA (`make gpu` tests there before).
Copy bandwidth and matrix rate are measured in the same run. Bars are shares of them; one set in absolute figures is
scaled from the rate that it was set for (`ISSUE_COPY`, `ISSUE_MATMUL`).
"""

import argparse
import sys
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

from benchmarks.harness import Bar, Measured, Row, report
from benchmarks.kernels import cascade, decode, drawing, prefill, small
from benchmarks.kernels.bench import Bench, Part, described, on_gpu, require_gpu

from paceline_core.clock import SystemClock

PARTS: dict[str, Part] = {
    "decode": decode.measure,
    "narrow": decode.measure_narrow,
    "prefill": prefill.measure,
    "cascade": cascade.measure,
    "small": small.measure,
    "sample": drawing.measure,
    "step": lambda bench: _engine("benchmarks.kernels.step").measure(bench),
}
"""By what `--only` calls them, in the order in which they run."""


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernels")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="PART", help=f"some of {', '.join(PARTS)}")
    chosen = parser.parse_args()
    require_gpu()
    suffix = ".part" if chosen.only else ".quick" if chosen.quick else ""
    report("kernels", lambda: _measured(chosen.only or list(PARTS), quick=chosen.quick), SystemClock(), suffix)


def measure(names: Sequence[str], bench: Bench, parts: Mapping[str, Part] = PARTS) -> list[Row]:
    """The rows of these parts. One that fails leaves a row that misses its bar, and takes no other with it."""
    rows: list[Row] = []
    for name in names:
        print(f"{name} ...", file=sys.stderr, flush=True)
        try:
            found = parts[name](bench)
        except Exception:  # noqa: BLE001 - a GPU is at hand too seldom to lose the other parts
            traceback.print_exc()
            found = [Row(f"{name}: did not finish", 1, "failures", bar=Bar(0))]
        for row in found:
            print(f"  {row.name}: {row.value:.4g} {row.unit} {row.bar or ''}", file=sys.stderr, flush=True)
        rows += found
    return rows


def _measured(names: Sequence[str], *, quick: bool) -> Measured:
    bench = on_gpu(quick=quick)
    rows = measure(names, bench)
    return rows, described(bench)


def _engine(module: str) -> Any:
    """A part that needs what the worker needs, and not torch and triton alone."""
    return import_module(module)


if __name__ == "__main__":
    main()

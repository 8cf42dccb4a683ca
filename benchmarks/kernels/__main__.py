"""The kernels against the limits of the GPU that they run on, and against others on the same data.

`python -m benchmarks.kernels [--quick] [--only PART ...]` needs a machine with CUDA (`make gpu` tests there before).
Copy bandwidth and matrix rate are measured in the same run. Bars are shares of them; one set in absolute figures is
scaled from the rate that it was set for (`ISSUE_COPY`, `ISSUE_MATMUL`).
"""

import argparse
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any

from benchmarks.harness import Measured, Row, report_parts
from benchmarks.kernels import decode, drawing, prefill, small
from benchmarks.kernels.bench import Bench, Part, described, missing, on_gpu, require_gpu, tried

from paceline_core.clock import SystemClock

PARTS: dict[str, Part] = {
    "decode": decode.measure,
    "narrow": decode.measure_narrow,
    "prefill": prefill.measure,
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
    require_gpu("`make gpu` or `python -m benchmarks.kernels`")
    suffix = ".part" if chosen.only else ".quick" if chosen.quick else ""
    report_parts("kernels", _measured(chosen.only or list(PARTS), quick=chosen.quick), SystemClock(), suffix)


def measure(names: Sequence[str], bench: Bench, parts: Mapping[str, Part] = PARTS) -> Iterator[list[Row]]:
    """Each part's rows. One that fails takes no other with it; an interrupt ends the run and keeps what was measured.

    A part that failed or was not run has a row for that, which misses its bar.
    """
    left = iter(names)
    for name in left:
        print(f"{name} ...", file=sys.stderr, flush=True)
        rows: list[Row] = []
        try:
            rows += _told(tried(name, partial(parts[name], bench)))
        except KeyboardInterrupt:
            traceback.print_exc()
            rows += _told([missing(name, "interrupted"), *(missing(other, "not run") for other in left)])
        yield rows


def _told(rows: Iterable[Row]) -> Iterator[Row]:
    for row in rows:
        print(f"  {row.name}: {row.value:.4g} {row.unit} {row.bar or ''}", file=sys.stderr, flush=True)
        yield row


def _measured(names: Sequence[str], *, quick: bool) -> Iterator[Measured]:
    bench = on_gpu(quick=quick)
    for rows in measure(names, bench):
        yield rows, described(bench)


def _engine(module: str) -> Any:
    """A part that needs what the worker needs, and not torch and triton alone."""
    return import_module(module)


if __name__ == "__main__":
    main()

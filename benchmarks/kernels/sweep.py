"""Which launch numbers are fastest on this machine's GPU: figures to choose the tables in `launch.py` by.

`python -m benchmarks.kernels.sweep [--only NAME ...]` prints for each row of a table what is fastest and how much
faster than what the table says, writes `benchmarks/results/sweep.json` with all that was tried, and changes no table:
the line is copied by hand, and the benchmark run again. A candidate that does not compile, fit or agree counts as slow.
"""

import argparse
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import geometric_mean, median
from typing import Any

import torch
from benchmarks.harness import Measured, Row, report
from benchmarks.kernels import decode, drawing, prefill, small
from benchmarks.kernels.bench import Bench, described, on_gpu, require_gpu
from benchmarks.kernels.climb import Climbed, climb
from benchmarks.kernels.contexts import Batch, contexts
from benchmarks.kernels.timing import Contestant
from triton.errors import TritonError

from paceline_core.clock import SystemClock
from paceline_kernels.paged_decode import launch as paged_decode
from paceline_kernels.paged_prefill import launch as paged_prefill
from paceline_kernels.sample import launch as sample
from paceline_kernels.work_list.launch import plan_work

ALIKE = 0.05
"""What results of two launches may differ by, as a share of the result's length."""
WARPS = (1, 2, 4, 8, 16)
DECODE = {
    "tile": (16, 32, 64),
    "warps": (2, 4, 8),
    "stages": (2, 3, 4, 5),
    "registers": (96, 128, 168, 200, 248),
    "programs": (1, 2, 3, 4),
}
PREFILL = {
    "tile": (32, 64, 128),
    "warps": (4, 8),
    "stages": (1, 2, 3, 4),
    "registers": (96, 128, 168, None),
    "bulk": (False, True),
}
PREFILL_STARTS = (
    paged_prefill.Launch(tile=32, warps=8, stages=3, registers=128, bulk=True),
    paged_prefill.Launch(tile=64, warps=8, stages=3, bulk=True),
    paged_prefill.Launch(tile=128, warps=8, stages=2),
)
"""Two programs of a multiprocessor, or one with all registers it wants: a climb does not get from one to the other."""
LEAST = {"least": (1, 2, 3, 4)}
SMALL: dict[str, dict[str, Sequence[int]]] = {
    "rope_append": {"heads": (4, 8, 16, 32), "warps": WARPS},
    "add_rmsnorm": {"warps": WARPS},
    "silu_mul": {"block": (256, 512, 1024, 2048, 4096), "warps": WARPS},
    "copy_blocks": {"block": (1024, 2048, 4096, 8192, 16384), "warps": WARPS},
}
SAMPLE: dict[str, Sequence[int]] = {
    "chunk": (1024, 2048, 4096, 8192),
    "warps": (4, 8, 16),
    "tile": (2048, 4096, 8192),
    "tile_warps": (8, 16, 32),
}

Work = Callable[[Any], Sequence[Contestant]]
"""What a launch is tried on: one contestant for each shape."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """A row of a table: its name, its numbers now and where else to begin, ladders, and what they are tried on."""

    name: str
    starts: tuple[Any, ...]
    ladders: Mapping[str, Sequence[Any]]
    work: Work


@dataclass(frozen=True, slots=True)
class Least:
    """What `Work.empty` takes beside a launch's numbers: how many tiles are worth a program."""

    least: int = 2


def sweeps(bench: Bench) -> list[Sweep]:
    """All rows of all tables that `bench.model` uses."""
    return [
        *_decode(bench),
        _work_list(bench),
        *_prefill(bench),
        *_small(bench, (small.MANY, small.FEW)),
        *_sample(bench),
    ]


def swept(bench: Bench, sweep: Sweep) -> Climbed:
    """Climb; what gives another result than the table's numbers is as slow as what fails."""
    wanted = [_result(contestant) for contestant in sweep.work(sweep.starts[0])]

    def seconds(launch: Any) -> float:
        try:
            return _seconds(bench, sweep.work(launch), wanted)
        except (TritonError, ValueError, RuntimeError) as error:
            print(f"  {launch}: {str(error).splitlines()[0]}", file=sys.stderr)
            return math.inf

    return climb(sweep.starts, sweep.ladders, seconds)


def _seconds(bench: Bench, contestants: Sequence[Contestant], wanted: Sequence[torch.Tensor]) -> float:
    times = []
    for contestant, expected in zip(contestants, wanted, strict=True):
        apart = ((_result(contestant) - expected).norm() / expected.norm()).item()
        if not apart <= ALIKE:
            raise RuntimeError(f"its result is {apart:.2g} off")
        timed = bench.timer.prepare(contestant)
        times.append(median(timed() for _ in range(bench.turns)))
    return geometric_mean(times)


def _result(contestant: Contestant) -> torch.Tensor:
    found = contestant.calls[0]()
    assert isinstance(found, torch.Tensor)
    return found.float().clone()


def _decode(bench: Bench) -> Iterator[Sweep]:
    for name, kind, queries in (("bf16", bench.dtype, 1), ("fp8", torch.float8_e4m3fn, 1), ("bf16", bench.dtype, 8)):
        start = paged_decode.launch_for(bench.dtype, kind, bench.model.head_dim, bench.model.group * queries)
        work = partial(_decoded, bench, kind, queries)
        yield Sweep(f"paged_decode {name}, {queries} queries", (start,), DECODE, work)


def _decoded(bench: Bench, kind: torch.dtype, queries: int, launch: Any) -> list[Contestant]:
    torch.manual_seed(0)
    batches = [batch for batch in decode.EVEN if batch.name in {"32 x 4k", "8 x 4k", "1 x 1k"}]
    return [decode.ours(contexts(bench, batch, kind, queries, launch)) for batch in batches]


def _work_list(bench: Bench) -> Sweep:
    """On a short context: only there are tiles fewer than programs."""
    return Sweep("work_list, 1 x 1k", (Least(),), LEAST, partial(_shared, bench))


def _shared(bench: Bench, launch: Least) -> list[Contestant]:
    torch.manual_seed(0)
    [batch] = [batch for batch in decode.EVEN if batch.name == "1 x 1k"]
    made = contexts(bench, batch)
    work = replace(made.work, least=launch.least)
    plan_work(made.sequences, bench.model.page, made.rule, work)
    return [decode.ours(replace(made, work=work))]


def _prefill(bench: Bench) -> Iterator[Sweep]:
    for chunks in prefill.CHUNKS:
        starts = (prefill.launch_of(bench, chunks), *PREFILL_STARTS)
        yield Sweep(f"paged_prefill, {chunks.name}", starts, PREFILL, partial(_prefilled, bench, chunks))


def _prefilled(bench: Bench, chunks: prefill.Chunks, launch: Any) -> list[Contestant]:
    torch.manual_seed(0)
    return [prefill.ours(bench, contexts(bench, Batch(chunks.name, chunks.lengths)), chunks, launch)]


def _small(bench: Bench, tokens: Sequence[int]) -> Iterator[Sweep]:
    starts = small.launches(bench)
    for name, ladders in SMALL.items():
        yield Sweep(name, (starts[name],), ladders, partial(_moved, bench, name, tokens))


def _moved(bench: Bench, name: str, tokens: Sequence[int], launch: Any) -> list[Contestant]:
    torch.manual_seed(0)
    moved = [one for count in tokens for one in small.kernels(bench.model, count) if one.name.startswith(name)]
    return [Contestant([one.make(bench, launch) for _ in range(bench.copies(one.bytes))]) for one in moved]


def _sample(bench: Bench) -> Iterator[Sweep]:
    for rows in (1, 16, 64):
        yield Sweep(f"sample, {rows} rows", (sample.launch_for(rows),), SAMPLE, partial(_sampled, bench, rows))


def _sampled(bench: Bench, rows: int, launch: Any) -> list[Contestant]:
    torch.manual_seed(0)
    calls = [drawing.drawn(bench, rows, asked, launch) for asked in drawing.ASKED.values()]
    return [Contestant([partial(_tokens, call)]) for call in calls]


def _tokens(call: Callable[[], Any]) -> torch.Tensor:
    found: torch.Tensor = call().tokens
    return found


def measure(names: Sequence[str] | None) -> Measured:
    """A row for each row of a table: microseconds of the best, beside those of the numbers that the table has."""
    bench = on_gpu(quick=True)
    rows, tried = [], {}
    for sweep in sweeps(bench):
        if names and not any(name in sweep.name for name in names):
            continue
        found = swept(bench, sweep)
        best, start = (found.tried[launch] * 1e6 for launch in (found.best, found.start))
        print(f"{sweep.name}: {found.best}  # {found.gain:.3f} times as fast as {found.start}", flush=True)
        rows.append(Row(f"{sweep.name}: {found.best}", best, "us", peer=start))
        tried[sweep.name] = {str(launch): seconds * 1e6 for launch, seconds in found.tried.items()}
        torch.cuda.empty_cache()
    return rows, described(bench) | {"tried_us": tried}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernels.sweep")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="rows whose name contains one of these")
    names: list[str] | None = parser.parse_args().only
    require_gpu("`python -m benchmarks.kernels.sweep`")
    report("sweep", lambda: measure(names), SystemClock(), ".part" if names else "")


if __name__ == "__main__":
    main()

"""Decode attention: the memory's speed in every form of batch, and who else reads the same keys and values.

All contestants attend to the same contexts (32 query heads on 8 heads of keys and values of 128 numbers). Ours and the
ablation read pages of 64 tokens in random order; torch's SDPA reads a contiguous copy of them, flex_attention pages of
128, its own block. The work list is made once a step, so it has a row of its own and is no part of the others.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from statistics import geometric_mean, median

import torch
from benchmarks.harness import Row
from benchmarks.kernels.bench import Bench, microseconds_row, missing, ratio_row, share_row, tried
from benchmarks.kernels.contexts import Batch, Contexts, contexts
from benchmarks.kernels.rivals import flex, sdpa
from benchmarks.kernels.segments import fixed_segments
from benchmarks.kernels.timing import Contestant, ratios, ready
from torch import Tensor

from paceline_kernels.paged_decode.launch import paged_decode
from paceline_kernels.paging import Pages
from paceline_kernels.work_list.launch import plan_work

NEAR = 0.02
"""What two kernels in bf16 may differ by, as a share of the result's length."""
ISSUE_COPY = 4.3e12
"""The copy rate for which bars in microseconds were set; they move with the rate that was measured."""
K = 1024
EVEN = (
    Batch("32 x 4k", (4 * K,) * 32, share=0.9, flex=True),
    Batch("64 x 4k", (4 * K,) * 64, share=0.9),
    Batch("8 x 32k", (32 * K,) * 8, share=0.9),
    Batch("8 x 4k", (4 * K,) * 8, most_us=44, flex=True),
    Batch("1 x 32k", (32 * K,), most_us=46, flex=True),
    Batch("1 x 1k", (K,), most_us=10, moves=False),
)
SMALL = 8
"""Sequences up to which fixed segments must lose by more."""
RAGGED = Batch("1 x 64k + 63 x 1k", (64 * K, *(K,) * 63))
AS_RAGGED = Batch("64 x 2032", (2032,) * 64)
NARROW = EVEN[:3]
BARS = {"fixed segments": 1.3, "torch SDPA, contiguous": 1.0, "torch flex_attention, paged": 1.3}
SMALL_BAR, RAGGED_BAR, NARROW_BAR = 1.6, 0.8, 1.75


def measure(
    bench: Bench, even: Sequence[Batch] = EVEN, ragged: tuple[Batch, Batch] = (RAGGED, AS_RAGGED)
) -> Iterator[Row]:
    """All rows of decode attention in 16-bit pages; a batch that fails leaves the others theirs."""
    for batch in even:
        yield from tried(_title(batch), partial(_even, bench, batch))
    yield from tried("decode, over fixed segments, geometric mean", partial(_over_segments, bench, even))
    yield from tried(_title(ragged[0]), partial(_uneven, bench, *ragged))
    yield from tried("work list", partial(_planned, bench, ragged[0]))


def measure_narrow(bench: Bench, batches: Sequence[Batch] = NARROW) -> Iterator[Row]:
    """Pages of eight bits against sixteen."""
    for batch in batches:
        both = {
            name: ours(contexts(bench, batch, dtype))
            for name, dtype in (("fp8", torch.float8_e4m3fn), ("bf16", bench.dtype))
        }
        times = bench.compare(f"decode narrow, {batch.name}", both)
        found = ratios(times["bf16"], times["fp8"])
        yield ratio_row(f"decode, {batch.name}, fp8 pages over bf16", found, NARROW_BAR)
        size = batch.bytes(bench.model) / 2 * (1 + 4 / bench.model.head_dim)
        yield share_row(f"decode, {batch.name}, fp8 pages", times["fp8"], size, bench.limits.copy)


def _title(batch: Batch) -> str:
    return f"decode, {batch.name}"


def _even(bench: Bench, batch: Batch) -> Iterator[Row]:
    times = _compared(bench, batch)
    yield from _own(bench, batch, times["ours"])
    for name in _rivals(batch):
        title = f"{_title(batch)}, over {name}"
        if name in times:
            yield ratio_row(title, ratios(times[name], times["ours"]), _bar(name, batch))
        else:
            yield missing(title, "did not run")


def _over_segments(bench: Bench, even: Sequence[Batch]) -> Iterator[Row]:
    """The mean of all batches; without one of them it would be another figure."""
    measured = [bench.times[_title(batch)] for batch in even]
    mean = geometric_mean(median(ratios(times["fixed segments"], times["ours"])) for times in measured)
    yield ratio_row("decode, over fixed segments, geometric mean", [mean], BARS["fixed segments"])


def _rivals(batch: Batch) -> dict[str, Callable[[Contexts], Contestant]]:
    paged = {"torch flex_attention, paged": flex} if batch.flex else {}
    return {"fixed segments": _fixed, "torch SDPA, contiguous": sdpa, **paged}


def _compared(bench: Bench, batch: Batch) -> dict[str, list[float]]:
    made = contexts(bench, batch)
    kinds = {"ours": ours, **_rivals(batch)}
    found = ready({name: partial(kind, made) for name, kind in kinds.items()}, bench.timer)
    agree(made.out, {name: contestant for name, (contestant, _) in found.items()})
    return bench.timed(_title(batch), {name: seconds for name, (_, seconds) in found.items()})


def agree(out: Tensor, contestants: Mapping[str, Contestant]) -> None:
    """All give the same, or the comparison is worth nothing. Each one's last call writes, or returns, its result."""
    results: dict[str, Tensor] = {}
    for name, contestant in contestants.items():
        out.fill_(float("nan"))
        found = contestant.calls[0]()
        assert isinstance(found, Tensor), name
        results[name] = found.float().reshape(out.shape).clone()
    first, *others = results.values()
    for name, other in zip(list(results)[1:], others, strict=True):
        apart = ((first - other).norm() / first.norm()).item()
        if not apart <= NEAR:
            raise RuntimeError(f"ours and {name} differ by {apart:.3g} in the same batch; nothing was timed")


def ours(made: Contexts) -> Contestant:
    """Our kernel on all copies."""

    def call(pages: Pages) -> Tensor:
        context = (pages, made.sequences, made.rule, made.work)
        return paged_decode(made.query, *context, out=made.out, launch=made.launch)

    return Contestant(_each(call, made))


def _fixed(made: Contexts) -> Contestant:
    def call(pages: Pages) -> Tensor:
        return fixed_segments(made.query, pages, made.sequences, made.rule.scale, out=made.out)

    return Contestant(_each(call, made))


def _each(call: Callable[[Pages], Tensor], made: Contexts) -> list[Callable[[], object]]:
    return [partial(call, pages) for pages in made.pools]


def _own(bench: Bench, batch: Batch, times: Sequence[float]) -> list[Row]:
    name = _title(batch)
    rows = [share_row(name, times, batch.bytes(bench.model), bench.limits.copy, batch.share)]
    if batch.most_us is not None:
        most = batch.most_us * (ISSUE_COPY / bench.limits.copy.rate if batch.moves else 1)
        rows.append(microseconds_row(name, times, most))
    return rows


def _bar(name: str, batch: Batch) -> float | None:
    if name == "fixed segments":
        return SMALL_BAR if len(batch.lengths) <= SMALL else None
    return BARS[name]


def _uneven(bench: Bench, ragged: Batch, even: Batch) -> list[Row]:
    """The bytes are the same, so the ratio of times is that of rates."""
    made = contexts(bench, ragged)
    contestants = {"ragged": ours(made), "even": ours(contexts(bench, even)), "fixed segments": _fixed(made)}
    agree(made.out, {name: contestants[name] for name in ("ragged", "fixed segments")})
    times = bench.compare(_title(ragged), contestants)
    size = ragged.bytes(bench.model) / even.bytes(bench.model)
    over = [size * ratio for ratio in ratios(times["even"], times["ragged"])]
    return [
        ratio_row(f"{_title(ragged)}, rate over that of {even.name}", over, RAGGED_BAR),
        ratio_row(f"{_title(ragged)}, over fixed segments", ratios(times["fixed segments"], times["ragged"])),
    ]


def _planned(bench: Bench, batch: Batch) -> Iterator[Row]:
    made = contexts(bench, batch)
    plan = Contestant((lambda: plan_work(made.sequences, bench.model.page, made.rule, made.work),))
    times = bench.compare("work list", {"ours": plan})
    yield microseconds_row(f"work list of {len(batch.lengths)} sequences, once a step", times["ours"])

"""Prefill attention against the rate of the GPU's own matrix products.

Operations are those of the pairs of query and key that are seen: two products of `head_dim` each.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate

import torch
from benchmarks.harness import Bar, Row
from benchmarks.kernels.bench import Bench, Model, ratio_row, share_row, tried
from benchmarks.kernels.contexts import Batch, Contexts, contexts
from benchmarks.kernels.rivals import contiguous
from benchmarks.kernels.timing import Contestant, ratios
from torch.nn.functional import scaled_dot_product_attention

from paceline_kernels.paged_prefill.launch import Launch, launch_for, paged_prefill
from paceline_kernels.paged_prefill.tiles import Tiles

ISSUE_MATMUL = 780e12
"""The rate of products for which the bar was set; it moves with the rate that was measured."""
CAUSAL_BAR = 450


@dataclass(frozen=True, slots=True)
class Chunks:
    """Chunks of `counts` tokens, the last of contexts of `lengths`; `tflops`: the bar at ISSUE_MATMUL."""

    name: str
    counts: tuple[int, ...]
    lengths: tuple[int, ...]
    tflops: float | None = None

    def operations(self, model: Model) -> float:
        """Of the pairs that are seen."""
        pairs = sum(c * (n - c) + c * (c + 1) / 2 for c, n in zip(self.counts, self.lengths, strict=True))
        return 4.0 * model.heads * model.head_dim * pairs


K = 1024
WHOLE = Chunks("causal 8k", (8 * K,), (8 * K,), CAUSAL_BAR)
CHUNKS = (
    WHOLE,
    Chunks("2k behind 30k", (2 * K,), (32 * K,)),
    Chunks("64 behind 32k", (64,), (32 * K + 64,)),
    Chunks("16 chunks of 512", (512,) * 16, (512,) * 16),
    Chunks("verify, 32 x 4 tokens behind 4k", (4,) * 32, (4 * K,) * 32),
)


def measure(bench: Bench, chunks: Sequence[Chunks] = CHUNKS) -> Iterator[Row]:
    """Rows of prefill attention; SDPA beside the first, which it can do. Who fails leaves the others their rows."""
    for one in chunks:
        yield from tried(f"prefill, {one.name}", partial(_chunks, bench, one, beside=one is chunks[0]))


def _chunks(bench: Bench, one: Chunks, *, beside: bool) -> Iterator[Row]:
    made = contexts(bench, Batch(one.name, one.lengths))
    contestants = {"ours": ours(bench, made, one)}
    if beside:
        contestants["torch SDPA, contiguous"] = _sdpa(bench, *contiguous(made.pools[0], made.sequences))
    times = bench.compare(f"prefill, {one.name}", contestants)
    yield from _own(bench, one, times["ours"])
    for name in [name for name in times if name != "ours"]:
        yield ratio_row(f"prefill, {one.name}, over {name}", ratios(times[name], times["ours"]))


def launch_of(bench: Bench, one: Chunks) -> Launch:
    """What the table says for these chunks."""
    made = contexts(bench, Batch(one.name, one.lengths))
    tiles = Tiles.of(one.counts, one.lengths, bench.device, bench.model.group)
    return launch_for(tiles.rows, bench.dtype, made.pools[0])


def ours(bench: Bench, made: Contexts, one: Chunks, launch: Launch | None = None) -> Contestant:
    """Our kernel on the first copy."""
    starts = torch.tensor([0, *accumulate(one.counts)], dtype=torch.int32, device=bench.device)
    query = bench.randn(sum(one.counts), bench.model.heads, bench.model.head_dim)
    out = torch.empty_like(query)
    tiles = Tiles.of(one.counts, one.lengths, bench.device, bench.model.group)
    context = (made.pools[0], made.sequences, made.rule)
    return Contestant((lambda: paged_prefill(query, starts, *context, tiles, out=out, launch=launch),))


def _sdpa(bench: Bench, keys: torch.Tensor, values: torch.Tensor) -> Contestant:
    query = bench.randn(len(keys), bench.model.heads, *keys.shape[2:])
    return Contestant((lambda: scaled_dot_product_attention(query, keys, values, is_causal=True, enable_gqa=True),))


def _own(bench: Bench, one: Chunks, times: Sequence[float]) -> list[Row]:
    name = f"prefill, {one.name}"
    shared = share_row(name, times, one.operations(bench.model), bench.limits.matmul)
    if one.tflops is None:
        return [shared]
    rates = [one.operations(bench.model) / seconds / 1e12 for seconds in times]
    bar = Bar(one.tflops * bench.limits.matmul.rate / ISSUE_MATMUL, at_least=True)
    spread = max(rates) - min(rates)
    return [shared, Row(name, sorted(rates)[len(rates) // 2], "TFLOP/s", spread=spread, bar=bar)]

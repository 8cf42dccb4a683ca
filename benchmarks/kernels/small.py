"""The kernels between the products: the least bytes that they must move, against the copy rate.

With many tokens, as in a prefill, the share of the copy rate counts; with a decode step's few, the time itself, in a
graph as it is there. Bytes are those of each input read once and each result written once.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from benchmarks.harness import Row
from benchmarks.kernels.bench import Bench, Model, microseconds_row, share_row
from benchmarks.kernels.timing import Call, Contestant

from paceline_kernels.add_rmsnorm.launch import add_rmsnorm
from paceline_kernels.copy_blocks.launch import copy_blocks
from paceline_kernels.paging import Pages
from paceline_kernels.rope_append.launch import rope_append
from paceline_kernels.silu_mul.launch import silu_mul

MANY, FEW = 8192, 64
COPIED = 64
"""Pages of all layers, as a preempted request of 4k tokens has."""


@dataclass(frozen=True, slots=True)
class Moved:
    """A kernel with its data: `make` gives one call on data of its own, which moves `bytes`."""

    name: str
    make: Callable[[Bench], Call]
    bytes: int


def measure(bench: Bench, many: int = MANY, few: int = FEW, copied: int = COPIED) -> list[Row]:
    """All rows."""
    rows = []
    for one in (*_kernels(bench.model, many), _copied(bench.model, copied)):
        times = _timed(bench, one)
        rows.append(share_row(one.name, times, one.bytes, bench.limits.copy))
    return rows + [microseconds_row(one.name, _timed(bench, one)) for one in _kernels(bench.model, few)]


def _timed(bench: Bench, one: Moved) -> Sequence[float]:
    calls = [one.make(bench) for _ in range(bench.copies(one.bytes))]
    return bench.compare(one.name, {"ours": Contestant(calls)})["ours"]


def _kernels(model: Model, tokens: int) -> Iterator[Moved]:
    rotated = 2 * model.width * 2 + model.head_dim * 4
    yield Moved(f"rope_append, {tokens} tokens", partial(_rope_append, tokens), tokens * rotated)
    yield Moved(f"add_rmsnorm, {tokens} tokens", partial(_add_rmsnorm, tokens), tokens * model.hidden * (2 + 4 + 4 + 2))
    yield Moved(f"silu_mul, {tokens} tokens", partial(_silu_mul, tokens), tokens * model.ffn * 3 * 2)


def _rope_append(tokens: int, bench: Bench) -> Call:
    model, pages = bench.model, -(-tokens // bench.model.page)
    pool = Pages(bench.empty(pages, model.kv_heads, 2, model.page, model.head_dim))
    qkv, out = bench.randn(tokens, model.width), bench.empty(tokens, model.heads, model.head_dim)
    cos, sin = bench.randn(2, tokens, model.head_dim // 2, dtype=torch.float32)
    slots = torch.randperm(pages * model.page)[:tokens].to(bench.device)
    return partial(rope_append, qkv, cos, sin, slots, pool, out=out)


def _add_rmsnorm(tokens: int, bench: Bench) -> Call:
    hidden = bench.model.hidden
    x, out = bench.randn(tokens, hidden), bench.empty(tokens, hidden)
    residual, weight = bench.randn(tokens, hidden, dtype=torch.float32), bench.randn(hidden, dtype=torch.float32)
    return partial(add_rmsnorm, x, residual, weight, 1e-5, out=out)


def _silu_mul(tokens: int, bench: Bench) -> Call:
    ffn = bench.model.ffn
    return partial(silu_mul, bench.randn(tokens, 2 * ffn), out=bench.empty(tokens, ffn))


def _copied(model: Model, count: int) -> Moved:
    def make(bench: Bench) -> Call:
        pool = bench.randn(model.layers, 2 * count, model.kv_heads, 2, model.page, model.head_dim)
        return partial(copy_blocks, pool, torch.randperm(2 * count).view(-1, 2).to(bench.device))

    return Moved(f"copy_blocks, {count} pages", make, 2 * count * model.layers * model.page * model.kv_bytes)

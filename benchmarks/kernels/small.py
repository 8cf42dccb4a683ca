"""The kernels between the products: the least bytes that they must move, against the copy rate.

With many tokens, as in a prefill, the share of the copy rate counts; with a decode step's few, the time itself, in a
graph as it is there. Bytes are those of each input read once and each result written once.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from benchmarks.harness import Row
from benchmarks.kernels.bench import Bench, Model, microseconds_row, share_row
from benchmarks.kernels.timing import Call, Contestant
from torch import Tensor

from paceline_kernels.add_rmsnorm import launch as add_rmsnorm
from paceline_kernels.copy_blocks import launch as copy_blocks
from paceline_kernels.paging import Pages
from paceline_kernels.rope_append import launch as rope_append
from paceline_kernels.silu_mul import launch as silu_mul

MANY, FEW = 8192, 64
FEWEST = 8


@dataclass(frozen=True, slots=True)
class Moved:
    """A kernel with its data: `make` gives one call, as a launch says, on data of its own, which moves `bytes`."""

    name: str
    make: Callable[[Bench, Any], Call]
    bytes: int


def measure(bench: Bench, many: int = MANY, few: int = FEW) -> Iterator[Row]:
    """All rows."""
    for one in kernels(bench.model, many):
        yield share_row(one.name, _timed(bench, one), one.bytes, bench.limits.copy)
    for one in kernels(bench.model, few):
        yield microseconds_row(one.name, _timed(bench, one))


def _timed(bench: Bench, one: Moved) -> Sequence[float]:
    calls = [one.make(bench, None) for _ in range(bench.copies(one.bytes))]
    return bench.compare(one.name, {"ours": Contestant(calls)})["ours"]


def kernels(model: Model, tokens: int) -> Iterator[Moved]:
    """All of them, on so many tokens; pages are copied for as many as hold these, but eight at least."""
    rotated = 2 * model.width * 2 + model.head_dim * 4
    yield Moved(f"rope_append, {tokens} tokens", partial(_rope_append, tokens), tokens * rotated)
    yield Moved(f"add_rmsnorm, {tokens} tokens", partial(_add_rmsnorm, tokens), tokens * model.hidden * (2 + 4 + 4 + 2))
    yield Moved(f"silu_mul, {tokens} tokens", partial(_silu_mul, tokens), tokens * model.ffn * 3 * 2)
    pages = max(tokens // model.page, FEWEST)
    moved = 2 * pages * model.layers * model.page * model.kv_bytes
    yield Moved(f"copy_blocks, {pages} pages of all layers", partial(_copy_blocks, pages), moved)


def launches(bench: Bench) -> dict[str, Any]:
    """What the tables say for this model."""
    model, size = bench.model, bench.dtype.itemsize
    return {
        "rope_append": rope_append.launch_for(model.head_dim),
        "add_rmsnorm": add_rmsnorm.launch_for(model.hidden),
        "silu_mul": silu_mul.launch_for(bench.dtype),
        "copy_blocks": copy_blocks.launch_for(model.kv_heads * 2 * model.page * model.head_dim * size // 4),
    }


def _rope_append(tokens: int, bench: Bench, launch: Any) -> Call:
    model, pages = bench.model, -(-tokens // bench.model.page)
    pool = Pages(bench.empty(pages, model.kv_heads, 2, model.page, model.head_dim))
    qkv, out = bench.randn(tokens, model.width), bench.empty(tokens, model.heads, model.head_dim)
    cos, sin = bench.randn(2, tokens, model.head_dim // 2, dtype=torch.float32)
    slots = torch.randperm(pages * model.page)[:tokens].to(bench.device)
    return partial(rope_append.rope_append, qkv, cos, sin, slots, pool, out=out, launch=launch)


def _add_rmsnorm(tokens: int, bench: Bench, launch: Any) -> Call:
    hidden = bench.model.hidden
    x, out = bench.randn(tokens, hidden), bench.empty(tokens, hidden)
    residual, weight = bench.randn(tokens, hidden, dtype=torch.float32), bench.randn(hidden, dtype=torch.float32)
    return partial(add_rmsnorm.add_rmsnorm, x, residual, weight, 1e-5, out=out, launch=launch)


def _silu_mul(tokens: int, bench: Bench, launch: Any) -> Call:
    ffn = bench.model.ffn
    return partial(silu_mul.silu_mul, bench.randn(tokens, 2 * ffn), out=bench.empty(tokens, ffn), launch=launch)


def _copy_blocks(count: int, bench: Bench, launch: Any) -> Call:
    model = bench.model
    pool = bench.randn(model.layers, 2 * count, model.kv_heads, 2, model.page, model.head_dim)
    pairs = torch.randperm(2 * count).view(-1, 2).to(bench.device)

    def call() -> Tensor:
        copy_blocks.copy_blocks(pool, pairs, launch=launch)
        return pool

    return call

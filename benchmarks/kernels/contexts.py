"""Contexts that contestants attend to: a batch of lengths in random pages, in more copies than a cache holds."""

from dataclasses import dataclass
from itertools import accumulate

import torch
from benchmarks.kernels.bench import Bench, Model
from torch import Tensor

from paceline_kernels.paged_decode.launch import Launch, launch_for
from paceline_kernels.paging import AttentionMask, Pages, Sequences
from paceline_kernels.work_list.launch import Work, plan_work


@dataclass(frozen=True, slots=True)
class Batch:
    """Lengths of its contexts, and what ours must reach: a share of the copy rate, or microseconds at most."""

    name: str
    lengths: tuple[int, ...]
    share: float | None = None
    most_us: float | None = None
    moves: bool = True
    """The bar in microseconds is one of bandwidth: it moves with the copy rate."""
    flex: bool = False

    def bytes(self, model: Model) -> int:
        """Of keys and values in sixteen bits."""
        return sum(self.lengths) * model.kv_bytes


@dataclass(frozen=True, slots=True)
class Contexts:
    """Several copies of a batch, each with pages of its own, and one query and result for all."""

    pools: tuple[Pages, ...]
    sequences: Sequences
    query: Tensor
    out: Tensor
    rule: AttentionMask
    work: Work
    launch: Launch


def contexts(
    bench: Bench, batch: Batch, kind: torch.dtype | None = None, queries: int = 1, launch: Launch | None = None
) -> Contexts:
    """The batch in random pages of some type, `queries` a sequence, the work shared as `launch` (the table's) asks."""
    model, kind = bench.model, bench.dtype if kind is None else kind
    rows = model.group * queries
    launch = launch or launch_for(bench.dtype, kind, model.head_dim, rows)
    sequences, pages = _sequences(bench, batch)
    pools = tuple(_pool(bench, pages, kind) for _ in range(bench.copies(batch.bytes(model) * kind.itemsize // 2)))
    shape = (len(sequences), queries, model.heads, model.head_dim)
    rule = AttentionMask(scale=model.head_dim**-0.5)
    programs = launch.programs * bench.multiprocessors
    work = Work.empty(len(sequences), model.kv_heads, rows, model.head_dim, programs, bench.device, tile=launch.tile)
    plan_work(sequences, model.page, rule, work, queries)
    return Contexts(pools, sequences, bench.randn(*shape), bench.empty(*shape), rule, work, launch)


def _sequences(bench: Bench, batch: Batch) -> tuple[Sequences, int]:
    """And how many pages they hold, all of them in random order."""
    needed = [-(-length // bench.model.page) for length in batch.lengths]
    order = torch.randperm(sum(needed)).int()
    table = torch.full((len(needed), max(needed)), -1, dtype=torch.int32)
    for row, (end, count) in enumerate(zip(accumulate(needed), needed, strict=True)):
        table[row, :count] = order[end - count : end]
    lengths = torch.tensor(batch.lengths, dtype=torch.int32, device=bench.device)
    return Sequences(table.to(bench.device), lengths, torch.zeros_like(lengths)), len(order)


def _pool(bench: Bench, pages: int, dtype: torch.dtype) -> Pages:
    shape = (pages, bench.model.kv_heads, 2, bench.model.page, bench.model.head_dim)
    if dtype.itemsize > 1:
        return Pages(bench.randn(*shape, dtype=dtype))
    scales = bench.randn(*shape[:4], dtype=torch.float32).abs()
    return Pages(bench.randn(*shape).clamp(-4, 4).to(dtype), scales)

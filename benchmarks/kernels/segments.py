"""Calls the ablation: decode attention over fixed segments."""

import math

import torch
from benchmarks.kernels.kernel import reduce_kernel, segments_kernel
from torch import Tensor

from paceline_kernels.paging import Pages, Sequences

TILE, SEGMENTS, LEAST_ROWS = 16, 16, 16
FULL = 128
"""Programs (sequences times heads of keys) beyond which sequences are not cut."""
LOG2_E = math.log2(math.e)


def fixed_segments(query: Tensor, pages: Pages, sequences: Sequences, scale: float, *, out: Tensor) -> Tensor:
    """Attention of `query` [sequences, 1, heads, head_dim] into `out`, without window, cap and sinks."""
    count, _, heads, dim = query.shape
    cut = SEGMENTS if count * pages.kv_heads <= FULL else 1
    partials = torch.empty((count, heads, cut, dim), dtype=torch.float32, device=query.device)
    sums = torch.empty((count, heads, cut, 2), dtype=torch.float32, device=query.device)
    segments_kernel[(count, pages.kv_heads, cut)](
        query,
        pages.data,
        sequences.table,
        sequences.lengths,
        out,
        partials,
        sums,
        scale * LOG2_E,
        sequences.table.stride(0),
        HEADS=heads,
        KV_HEADS=pages.kv_heads,
        ROWS=max(LEAST_ROWS, heads // pages.kv_heads),
        HEAD_DIM=dim,
        PAGE_TOKENS=pages.page_tokens,
        TILE=TILE,
        SEGMENTS=cut,
    )
    if cut > 1:
        reduce_kernel[(count * heads,)](partials, sums, out, HEAD_DIM=dim, SEGMENTS=cut)
    return out

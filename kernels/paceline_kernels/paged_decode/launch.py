"""Decode: few queries for each sequence, against its whole context, on a fixed grid with a work list."""

from dataclasses import dataclass

import torch
from torch import Tensor

from paceline_kernels.checks import check_tensor, expect_pages, power_of_2
from paceline_kernels.merge_splits.launch import merge_splits
from paceline_kernels.paged_decode.kernel import decode_kernel
from paceline_kernels.paging import AttentionMask, Pages, Sequences
from paceline_kernels.work_list.launch import Work

MOST_QUERIES = 8
"""The most queries of a sequence: a verify step."""
MOST_ROWS = 128
"""The most queries that share a kv head: a program keeps them in registers."""
LEAST_HEAD_DIM, MOST_HEAD_DIM = 16, 256
"""The smallest and largest head dimension."""


@dataclass(frozen=True, slots=True)
class Launch:
    """`tile`: tokens read at once; `stages`: one more than tiles in flight; `registers`: the most for a thread.

    `programs`: for each multiprocessor. `Work.empty` needs the same `tile`, and this times the multiprocessors.
    """

    tile: int
    warps: int
    stages: int
    registers: int | None
    programs: int


_TABLE = {
    (1, 64, 32): Launch(tile=64, warps=4, stages=4, registers=128, programs=4),
    (1, 128, 16): Launch(tile=64, warps=4, stages=4, registers=168, programs=3),
    (1, 128, 32): Launch(tile=64, warps=4, stages=4, registers=None, programs=2),
    (1, 256, 32): Launch(tile=32, warps=4, stages=3, registers=None, programs=2),
    (1, 128, 64): Launch(tile=64, warps=4, stages=3, registers=None, programs=2),
    (1, 256, 128): Launch(tile=32, warps=8, stages=3, registers=None, programs=1),
    (2, 64, 32): Launch(tile=64, warps=4, stages=4, registers=128, programs=4),
    (2, 128, 32): Launch(tile=64, warps=4, stages=3, registers=168, programs=3),
    (2, 256, 32): Launch(tile=32, warps=4, stages=3, registers=None, programs=2),
    (2, 128, 64): Launch(tile=32, warps=4, stages=3, registers=None, programs=2),
    (2, 128, 128): Launch(tile=32, warps=8, stages=3, registers=None, programs=1),
    (2, 256, 128): Launch(tile=16, warps=8, stages=2, registers=None, programs=1),
    (4, 128, 16): Launch(tile=32, warps=4, stages=3, registers=None, programs=3),
    (4, 128, 32): Launch(tile=16, warps=4, stages=4, registers=None, programs=3),
    (4, 256, 128): Launch(tile=16, warps=8, stages=2, registers=None, programs=1),
}
"""By bytes of a number, head_dim and rows, each at most this many: first guesses, until `make gpu` has chosen.

Compiler output for sm_90 (Triton 3.6 and 3.9): the loop is one pipeline, cp.async of 16 bytes, 2 tiles in flight with 3
stages, and it continues over borders of heads and sequences. The number of the next tile's page must be carried into
the iteration that loads the tile: loaded in that iteration, it takes a pipeline stage for itself, and three stages keep
only one tile in flight. bf16, head_dim 128: 142 to 159 registers with a limit of 168 (180 to 190 without), no spills,
73,728 bytes of shared memory, so three programs fit a multiprocessor (227 KiB) with 192 KiB in flight.

Narrow pages are near the issue limit, because bytes must be widened. fp8 is multiplied in float16, a conversion of one
instruction for two numbers; bfloat16 needs conversions on the slow unit of the exponential function. For few queries, 8
rows are kept, an `mma` tile whose sums take half as many registers, and scales are loaded without a mask. Tried and
dropped: int8 through float16 by bits; keys and values on the left of the products, 8 queries on the right; 8 rows for
16 bits; a tile of 32.
Values are needed transposed, which `ldmatrix` does not do for bytes: laid out for the product as they arrive, they are
copied by 8 bytes (3.9; by 4 and 8 under 3.6) and read one by one; widened first, which a hint in the kernel makes 3.6
do, by 16.

Products of up to 32 rows use `mma`, of 64 and more `wgmma`; float32 is computed without tensor cores. The cases of
`benchmarks.kernels.compiled` say which ones spill, and how much.
"""


def launch_for(query: torch.dtype, pages: torch.dtype, head_dim: int, rows: int) -> Launch:
    """The table's first row that is large enough, for pages of this type and `rows` queries of a kv head."""
    size = 4 if query == torch.float32 else pages.itemsize
    fits = (
        launch for (wide, dims, most), launch in _TABLE.items() if wide == size and head_dim <= dims and rows <= most
    )
    return next(fits)


def paged_decode(
    query: Tensor,
    pages: Pages,
    sequences: Sequences,
    rule: AttentionMask,
    work: Work,
    *,
    sink_logits: Tensor | None = None,
    out: Tensor,
    lse: Tensor | None = None,
    launch: Launch | None = None,
) -> Tensor:
    """Attention of queries [S, Q, H, D] into `out`, the same shape; logarithms of the sums into `lse` [S, Q, H].

    Query j of Q is token `length - Q + j` of its sequence: Q is 1, or up to 8 in a verify step. `plan_work` must have
    filled `work` for these lengths, this rule and this number of queries. Two launches. The natural logarithms
    (float32) include the sinks' part; a query that sees nothing gives 0 and minus infinity.
    """
    _check(query, pages, sequences, work)
    if not (query.is_contiguous() and out.is_contiguous() and out.shape == query.shape):
        raise ValueError(f"out: {tuple(out.shape)} and query: {tuple(query.shape)} are not contiguous and alike")
    _, queries, heads, head_dim = query.shape
    if lse is not None:
        check_tensor("lse", lse, *query.shape[:3])
    if sink_logits is not None:
        check_tensor("sink_logits", sink_logits, heads)
    rows = heads // pages.kv_heads * queries
    launch = launch or launch_for(query.dtype, pages.data.dtype, head_dim, rows)
    decode_kernel[(work.programs,)](
        query,
        pages.data,
        pages.scales,
        sequences.table,
        work.entries,
        work.live,
        sink_logits,
        out,
        lse,
        work.partials,
        work.lses,
        rule.scale,
        sequences.table.stride(0),
        work.lses.stride(0),
        HEADS=heads,
        KV_HEADS=pages.kv_heads,
        QUERIES=queries,
        DIM=head_dim,
        PAGE=pages.page_tokens,
        TILE=work.tile_of(pages.page_tokens),
        ROWS=max(power_of_2(rows), 8 if pages.scales is not None else 16),
        WINDOW=rule.window or 0,
        FIRST=0 if rule.window is None else rule.first,
        CAP=rule.cap,
        NARROW=pages.scales is not None,
        SINKS=sink_logits is not None,
        LSE=lse is not None,
        STAGES=launch.stages,
        num_warps=launch.warps,
        maxnreg=launch.registers,
    )
    return merge_splits(work, sequences, sink_logits=sink_logits, out=out, lse=lse)


def _check(query: Tensor, pages: Pages, sequences: Sequences, work: Work) -> None:
    expect_pages(pages)
    places, queries, heads, head_dim = query.shape
    rows = heads // pages.kv_heads * queries
    if not 0 < queries <= MOST_QUERIES:
        raise ValueError(f"query: {queries} a sequence is not between 1 and {MOST_QUERIES}; paged_prefill takes more")
    if heads % pages.kv_heads or rows > MOST_ROWS:
        raise ValueError(f"query: {heads} heads, {queries} a sequence, do not share {pages.kv_heads} kv heads")
    if not LEAST_HEAD_DIM <= head_dim <= MOST_HEAD_DIM or head_dim != power_of_2(head_dim):
        raise ValueError(f"query: head_dim {head_dim} is no power of two from {LEAST_HEAD_DIM} to {MOST_HEAD_DIM}")
    if head_dim != pages.head_dim or places != len(sequences):
        raise ValueError(f"query: {tuple(query.shape)} does not fit {len(sequences)} sequences of {pages.head_dim}")
    if work.kv_heads != pages.kv_heads or work.partials.shape[2] != head_dim or work.partials.shape[1] < rows:
        raise ValueError(f"work: made for {work.kv_heads} kv heads, {tuple(work.partials.shape[1:])} a partial")

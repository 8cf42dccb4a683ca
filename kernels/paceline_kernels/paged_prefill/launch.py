"""Calls the kernel of chunks, with the sizes that suit a tile's rows and the types of queries and pages.

First guesses for Hopper, compiled for sm_90 and not yet timed: `make gpu` chooses them.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from paceline_kernels.checks import check_tensor, expect_pages
from paceline_kernels.paged_prefill.kernel import prefill_kernel
from paceline_kernels.paged_prefill.tiles import ROWS, Tiles
from paceline_kernels.paging import AttentionMask, Pages, Sequences


@dataclass(frozen=True, slots=True)
class Launch:
    """`tile`: tokens of the context at a time; `registers`: the most for a thread, None: no limit.

    `bulk`: load with the copy engine; then a tile is at most a page.
    """

    tile: int
    warps: int
    stages: int
    registers: int | None = None
    bulk: bool = False


def launch_for(rows: int, query: torch.dtype, pages: Pages) -> Launch:
    """By the rows of a tile, the types, the head's size and the page's.

    Tiles of 128 rows in 16 bits fit into 128 registers a thread and 80 KiB, so two programs share a multiprocessor and
    one's products overlap the other's softmax. With 64 tokens they do not fit, or ptxas makes each product wait for the
    one before it. Bytes must be widened first and take all available registers, so one program fits.
    Known hole: 128 rows of float32 heads of 256 do not fit; give `Tiles.of` fewer `rows`.
    """
    whole = pages.page_tokens >= 64
    if query == torch.float32:
        return Launch(tile=16, warps=8 if rows == ROWS else 4, stages=2)
    if pages.head_dim > 128:
        return Launch(tile=32, warps=8 if rows == ROWS else 4, stages=2, bulk=whole)
    if rows < ROWS:
        return Launch(tile=64, warps=4, stages=3, bulk=whole)
    if pages.scales is not None:
        return Launch(tile=64, warps=8, stages=3, bulk=whole)
    return Launch(tile=32, warps=8, stages=3, registers=128, bulk=pages.page_tokens >= 32)


def paged_prefill(
    query: Tensor,
    starts: Tensor,
    pages: Pages,
    sequences: Sequences,
    rule: AttentionMask,
    tiles: Tiles,
    *,
    sink_logits: Tensor | None = None,
    out: Tensor,
    lse: Tensor | None = None,
    launch: Launch | None = None,
) -> Tensor:
    """Attention of `query` [tokens, heads, head_dim] into `out`.

    Rows starts[i]:starts[i + 1] (`starts` [sequences + 1] int32) are the last tokens of sequence i. `sink_logits`
    [heads] float32 are in each row's sum and have no value. `lse` [tokens, heads] float32 is the natural logarithm of
    that sum. A sequence without tokens gives 0 and minus infinity.
    """
    _check_pages(query, pages, sink_logits)
    _check(query, starts, sequences, out, lse)
    _check_rule(rule)
    heads, numbers = query.shape[1], launch or launch_for(tiles.rows, query.dtype, pages)
    if heads // pages.kv_heads % tiles.packed:
        raise ValueError(f"tiles: {tiles.packed} heads in each; {heads // pages.kv_heads} share a kv head")
    if not len(tiles.list):
        return out
    prefill_kernel[(len(tiles.list) * (heads // tiles.packed),)](
        query,
        starts,
        pages.data,
        _descriptor(pages, numbers),
        pages.scales,
        sequences.table,
        sequences.lengths,
        sequences.dropped,
        tiles.list,
        sink_logits,
        out,
        lse,
        rule.scale,
        sequences.table.stride(0),
        HEADS=heads,
        KV=pages.kv_heads,
        PACK=tiles.packed,
        PAGE=pages.page_tokens,
        DIM=pages.head_dim,
        ROWS=tiles.rows,
        TILE=numbers.tile,
        WINDOW=rule.window or 0,
        FIRST=rule.first,
        CAP=rule.cap,
        NARROW=pages.scales is not None,
        num_warps=numbers.warps,
        num_stages=numbers.stages,
        maxnreg=numbers.registers,
    )
    return out


def _descriptor(pages: Pages, numbers: Launch) -> TensorDescriptor | None:
    """The pool as rows of keys or values, from which the copy engine loads a tile."""
    if not numbers.bulk:
        return None
    if numbers.tile > pages.page_tokens:
        raise ValueError(f"launch: the copy engine brings {numbers.tile} tokens from pages of {pages.page_tokens}")
    if numbers.tile not in pages.descriptors:
        rows, block = pages.data.view(-1, pages.head_dim), [numbers.tile, pages.head_dim]
        pages.descriptors[numbers.tile] = TensorDescriptor(rows, list(rows.shape), list(rows.stride()), block)
    return pages.descriptors[numbers.tile]


def _check_pages(query: Tensor, pages: Pages, sink_logits: Tensor | None) -> None:
    """Raises ValueError if queries do not fit these pages."""
    expect_pages(pages)
    *_, heads, head_dim = query.shape
    if head_dim != pages.head_dim or head_dim < 16 or head_dim & (head_dim - 1):
        raise ValueError(f"query: heads of {head_dim}; the pages hold {pages.head_dim}, a power of two from 16 on")
    if heads % pages.kv_heads:
        raise ValueError(f"query: {heads} heads are no multiple of {pages.kv_heads} kv heads")
    if sink_logits is not None:
        check_tensor("sink_logits", sink_logits, heads)


def _check_rule(rule: AttentionMask) -> None:
    if rule.scale <= 0:  # the largest score is found before the scale is multiplied in
        raise ValueError(f"rule: a scale of {rule.scale}; it must be above 0")


def _check(query: Tensor, starts: Tensor, sequences: Sequences, out: Tensor, lse: Tensor | None) -> None:
    check_tensor("query", query, -1, -1, -1)
    check_tensor("out", out, *query.shape)
    check_tensor("starts", starts, len(sequences) + 1)
    if lse is not None:
        check_tensor("lse", lse, *out.shape[:-1])

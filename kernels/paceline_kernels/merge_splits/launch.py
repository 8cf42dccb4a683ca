"""Merging: the partials that a work list left, and whole states of a cascade."""

from torch import Tensor

from paceline_kernels.merge_splits.kernel import merge_splits_kernel, merge_states_kernel
from paceline_kernels.paging import Sequences
from paceline_kernels.sizes import ceil_div
from paceline_kernels.work_list.launch import Work

_CHUNK = 32
"""Partials that are merged at once."""
_LANES = 8
"""Programs among which the rows of a head are dealt, at most."""
_LINES = 8
"""Heads of tokens that a program merges states of."""


def merge_splits(
    work: Work,
    sequences: Sequences,
    *,
    sink_logits: Tensor | None = None,
    out: Tensor,
    lse: Tensor | None = None,
) -> Tensor:
    """Merge what `paged_decode` left in `work` into `out` [S, Q, H, D] and `lse` [S, Q, H], and clear empty places.

    What a program computed whole is there already. An empty sequence gives 0 and minus infinity.
    """
    places, queries, heads, head_dim = out.shape
    merge_splits_kernel[(work.programs, min(heads // work.kv_heads * queries, _LANES))](
        work.partials,
        work.lses,
        work.entries,
        sequences.lengths,
        sink_logits,
        out,
        lse,
        places,
        work.lses.stride(0),
        HEADS=heads,
        KV_HEADS=work.kv_heads,
        QUERIES=queries,
        DIM=head_dim,
        SINKS=sink_logits is not None,
        LSE=lse is not None,
        CHUNK=_CHUNK,
    )
    return out


def merge_states(outs: Tensor, lses: Tensor, out: Tensor, lse: Tensor | None = None) -> Tensor:
    """Attention over n disjoint sets of keys, outs [n, rows, H, D] and natural logarithms lses [n, rows, H], in one.

    Into `out` [rows, H, D] and `lse` [rows, H]. A part that saw nothing has minus infinity in `lses`; where all of them
    do, the result is 0 and minus infinity. A sink belongs into exactly one of the parts.
    """
    if outs.shape[1:] != out.shape or lses.shape != outs.shape[:-1]:
        raise ValueError(f"outs: {tuple(outs.shape)} does not match out {tuple(out.shape)}, lses {tuple(lses.shape)}")
    lines = out[..., 0].numel()
    merge_states_kernel[(ceil_div(lines, _LINES),)](
        outs, lses, out, lse, len(outs), lines, DIM=out.shape[-1], LSE=lse is not None, BLOCK=_LINES
    )
    return out

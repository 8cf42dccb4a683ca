"""Merges the partials of a work list."""

from torch import Tensor

from paceline_kernels.merge_splits.kernel import merge_splits_kernel
from paceline_kernels.paging import Sequences
from paceline_kernels.work_list.launch import Work

_CHUNK = 32
"""How many partials are merged at once."""
_LANES = 8
"""The most programs that share the rows of a head."""


def merge_splits(
    work: Work,
    sequences: Sequences,
    *,
    sink_logits: Tensor | None = None,
    out: Tensor,
    lse: Tensor | None = None,
) -> Tensor:
    """Merge the partials of `paged_decode` in `work` into `out` [S, Q, H, D] and `lse` [S, Q, H]; clear empty places.

    Heads that one program computed whole are there already. An empty sequence gives 0 and minus infinity.
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

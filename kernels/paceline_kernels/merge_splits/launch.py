"""Merging: the partials that a work list left, and whole states of a cascade."""

from torch import Tensor

from paceline_kernels.merge_splits.reference import merged


def merge_states(outs: Tensor, lses: Tensor, out: Tensor, lse: Tensor | None = None) -> Tensor:
    """Attention over n disjoint sets of keys, outs [n, rows, H, D] and natural logarithms lses [n, rows, H], in one.

    Into `out` [rows, H, D] and `lse` [rows, H]. A part that saw nothing has minus infinity in `lses`; where all of them
    do, the result is 0 and minus infinity. A sink belongs into exactly one of the parts.
    """
    mixed, total = merged(outs.to(lses.dtype), lses)
    if lse is not None:
        lse.copy_(total)
    return out.copy_(mixed)

"""Decode: few queries for each sequence, against all of its context, on a fixed grid and a work list."""

from torch import Tensor

from paceline_kernels.paged_decode.reference import paged_attention
from paceline_kernels.paging import Pages, Rule, Sequences
from paceline_kernels.work_list.launch import Work


def paged_decode(
    query: Tensor,
    pages: Pages,
    sequences: Sequences,
    rule: Rule,
    work: Work,
    *,
    sink_logits: Tensor | None = None,
    out: Tensor,
    lse: Tensor | None = None,
) -> Tensor:
    """Attention of queries [S, Q, H, D] into `out`, the same shape; logarithms of the sums into `lse` [S, Q, H].

    Query j of Q is token `length - Q + j` of its sequence: Q is 1, or up to 8 of a verify step. `work` was filled by
    `plan_work` for these lengths, this rule and so many queries. Two launches. The natural logarithms (float32) hold
    the sinks' part; where a query sees nothing it gives 0 and minus infinity.
    """
    del work
    mixed, sums = paged_attention(query, pages, sequences, rule, sink_logits)
    if lse is not None:
        lse.copy_(sums)
    return out.copy_(mixed)

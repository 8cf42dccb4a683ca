"""The same in plain PyTorch, a sequence at a time, in the type of the queries: what the kernel is compared with."""

from itertools import pairwise

import torch
from torch import Tensor

from paceline_kernels.paging import Pages, Rule, Sequences


def paged_prefill(
    query: Tensor,
    starts: Tensor,
    pages: Pages,
    sequences: Sequences,
    rule: Rule,
    *,
    sink_logits: Tensor | None = None,
    causal: bool = True,
) -> tuple[Tensor, Tensor]:
    """The launch's answer, and the natural logarithm of each row's sum [tokens, heads]."""
    out, lse = torch.zeros_like(query), torch.full(query.shape[:2], -torch.inf, dtype=query.dtype, device=query.device)
    bounds, lengths = starts.tolist(), sequences.lengths.tolist()
    for row, (begin, end) in enumerate(pairwise(bounds)):
        if begin == end or not lengths[row]:
            continue
        places = torch.arange(lengths[row] - (end - begin), lengths[row], device=query.device)
        keys, values, known = _context(pages, sequences, row, rule.head(pages.page_tokens), query.dtype)
        seen = (visible(places, len(keys), rule) if causal else torch.ones_like(known)[None]) & known
        out[begin:end], lse[begin:end] = _attend(query[begin:end], keys, values, seen, rule, sink_logits)
    return out, lse


def visible(places: Tensor, tokens: int, rule: Rule) -> Tensor:
    """[places, tokens]: which tokens those at these places see."""
    keys, queries = torch.arange(tokens, device=places.device), places[:, None]
    near = torch.ones_like(keys, dtype=torch.bool) if rule.window is None else keys > queries - rule.window
    return (keys <= queries) & (near | (keys < rule.first))


def _context(
    pages: Pages, sequences: Sequences, row: int, head: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Keys and values [tokens, kv heads, head_dim] of a sequence; where its table has no page they mean nothing."""
    length, dropped = int(sequences.lengths[row]), int(sequences.dropped[row])
    numbers = torch.arange(-(-length // pages.page_tokens), device=pages.data.device)
    known = (numbers < head) | (numbers >= head + dropped)
    entries = torch.where(numbers < head, numbers, numbers - dropped).clamp(min=0)
    chosen = sequences.table[row, entries].long()
    known &= chosen >= 0
    data = pages.data[chosen.clamp(min=0)].to(dtype)
    if pages.scales is not None:
        data = data * pages.scales[chosen.clamp(min=0), ..., None].to(dtype)
    keys, values = data.permute(2, 0, 3, 1, 4).flatten(1, 2)[:, :length]
    return keys, values, known.repeat_interleave(pages.page_tokens)[:length]


def _attend(
    query: Tensor, keys: Tensor, values: Tensor, seen: Tensor, rule: Rule, sink_logits: Tensor | None
) -> tuple[Tensor, Tensor]:
    group = query.shape[1] // keys.shape[1]
    keys, values = (part.repeat_interleave(group, 1) for part in (keys, values))
    scores = torch.einsum("qhd,khd->qhk", query, keys) * rule.scale
    if rule.cap:
        scores = rule.cap * torch.tanh(scores / rule.cap)
    scores = scores.masked_fill(~seen[:, None], -torch.inf)
    if sink_logits is not None:
        sinks = sink_logits.to(query.dtype)[None, :, None].expand(len(query), -1, 1)
        scores = torch.cat([scores, sinks], -1)
    weights = scores.softmax(-1)[..., : len(keys)]
    values = values.masked_fill(~seen.any(0)[:, None, None], 0.0)
    return torch.einsum("qhk,khd->qhd", weights, values), scores.logsumexp(-1)

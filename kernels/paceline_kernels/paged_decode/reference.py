"""Attention of the last rows of each sequence to its pages, one sequence after another, in the type of the queries."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from paceline_kernels.paging import AttentionMask, Pages, Sequences


def paged_attention(
    query: Tensor, pages: Pages, sequences: Sequences, rule: AttentionMask, sink_logits: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Out [S, Q, H, D] and the natural logarithm of the sums [S, Q, H] for queries [S, Q, H, D].

    Query j of Q is token `length - Q + j`. A query that sees no token (an empty sequence, or a place before its first
    token) gives 0 and minus infinity. A sink's logit [H] is in the sum, but has no value: exp(sink) / sum is lost.
    """
    out, lse = torch.zeros_like(query), query.new_full(query.shape[:3], -math.inf)
    for number in sequences.lengths.nonzero().flatten().tolist():
        context = Context.of(sequences, number, rule, pages.page_tokens, query.shape[1])
        keys, values = context.gather(pages, query.dtype)
        out[number], lse[number] = attend(query[number], keys, values, context.visible(), rule, sink_logits)
    return out, lse


@dataclass(frozen=True, slots=True)
class Context:
    """What the last tokens of a sequence attend to: their positions `own` and those of the gathered tokens, `seen`.

    `slots`: the locations of these, page * page_tokens + offset. Only visible pages are looked up.
    """

    own: Tensor
    seen: Tensor
    slots: Tensor
    rule: AttentionMask

    @classmethod
    def of(cls, sequences: Sequences, number: int, rule: AttentionMask, page_tokens: int, queries: int) -> "Context":
        """For the last `queries` tokens of this sequence."""
        device, length = sequences.table.device, int(sequences.lengths[number])
        seen, head = torch.arange(length, device=device), rule.head(page_tokens)
        if rule.window is not None:
            begin = max(length - queries - rule.window + 1, 0) // page_tokens
            seen = seen[(seen >= begin * page_tokens) | (seen < head * page_tokens)]
        pages = seen // page_tokens
        held = sequences.table[number][pages - (pages >= head) * sequences.dropped[number]].long()
        own = torch.arange(length - queries, length, device=device)
        return cls(own, seen, held * page_tokens + seen % page_tokens, rule)

    def visible(self) -> Tensor:
        """[own, seen]: whether a token sees another."""
        own, past = self.own[:, None], self.seen <= self.own[:, None]
        if self.rule.window is None:
            return past
        return past & ((self.seen > own - self.rule.window) | (self.seen < self.rule.first))

    def gather(self, pages: Pages, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Keys and values [kv heads, seen, D]."""
        held, offsets = self.slots // pages.page_tokens, self.slots % pages.page_tokens
        found = pages.data[held, :, :, offsets].to(dtype)  # [seen, kv heads, 2, D]
        if pages.scales is not None:
            found = found * pages.scales[held, :, :, offsets].to(dtype)[..., None]
        return found[:, :, 0].transpose(0, 1), found[:, :, 1].transpose(0, 1)


def attend(
    query: Tensor, keys: Tensor, values: Tensor, visible: Tensor, rule: AttentionMask, sink_logits: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Out [Q, H, D] and lse [Q, H] for queries [Q, H, D], keys and values [kv heads, T, D], visibility [Q, T]."""
    grouped = query.view(len(query), len(keys), -1, query.shape[-1])
    scores = torch.einsum("qkgd,ktd->qkgt", grouped, keys) * rule.scale
    if rule.cap:
        scores = rule.cap * torch.tanh(scores / rule.cap)
    scores = scores.masked_fill(~visible[:, None, None], -math.inf)
    sums = scores.logsumexp(-1)
    empty = sums == -math.inf
    if sink_logits is not None:
        sinks = sink_logits.to(sums.dtype).view(len(keys), -1)
        sums = torch.logaddexp(sums, sinks).masked_fill(empty, -math.inf)
    weights = torch.exp(scores - sums.masked_fill(empty, 0)[..., None])
    return torch.einsum("qkgt,ktd->qkgd", weights, values).flatten(1, 2), sums.flatten(1)

"""A plan as tensors: one ragged row per token for the linear layers, sequences by shape for attention.

Rows follow the plan's chunks. Chunks of one token ("singles": decodes, and prompts with one token left) attend
together, padded in groups whose longest context is at most twice the shortest; longer chunks attend one by one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from paceline_workers.engine.scheduling import Chunk, Plan


@dataclass(frozen=True, slots=True)
class Span:
    """A chunk of several tokens: its rows, and the pages of the whole context behind and in it.

    mask [tokens, context]: which of the gathered tokens each row may see.
    """

    rows: slice
    pages: Tensor
    mask: Tensor


@dataclass(frozen=True, slots=True)
class Singles:
    """Chunks of one token: rows [n], pages [n, most pages], mask [n, 1, 1, most pages * page_tokens]."""

    rows: Tensor
    pages: Tensor
    mask: Tensor


@dataclass(frozen=True, slots=True)
class Batch:
    """`slots`: where each row's key and value go, page * page_tokens + offset; `sampled`: rows whose logits count."""

    tokens: Tensor
    positions: Tensor
    slots: Tensor
    spans: tuple[Span, ...]
    singles: tuple[Singles, ...]
    sampled: Tensor

    @classmethod
    def of(cls, plan: Plan, page_tokens: int) -> "Batch":
        """Lay out a plan; `plan.chunks` must not be empty."""
        chunks = plan.chunks
        starts = [0, *accumulate(chunk.count for chunk in chunks)]
        rows = list(zip(chunks, starts, strict=False))
        positions = torch.cat([torch.arange(chunk.start, chunk.start + chunk.count) for chunk in chunks])
        return cls(
            tokens=torch.tensor([token for chunk in chunks for token in _tokens(chunk)]),
            positions=positions,
            slots=torch.cat([_slots(chunk, page_tokens) for chunk in chunks]),
            spans=tuple(_span(chunk, row, page_tokens) for chunk, row in rows if chunk.count > 1),
            singles=tuple(_singles(group, page_tokens) for group in _groups(rows, page_tokens)),
            sampled=torch.tensor([row + chunk.count - 1 for chunk, row in rows if chunk.samples], dtype=torch.long),
        )


def _tokens(chunk: Chunk) -> list[int]:
    return chunk.request.tokens[chunk.start : chunk.start + chunk.count]


def _pages(chunk: Chunk, page_tokens: int) -> list[int]:
    """Pages up to the chunk's last token."""
    return chunk.request.pages[: -(-(chunk.start + chunk.count) // page_tokens)]


def _slots(chunk: Chunk, page_tokens: int) -> Tensor:
    positions = torch.arange(chunk.start, chunk.start + chunk.count)
    return torch.tensor(chunk.request.pages)[positions // page_tokens] * page_tokens + positions % page_tokens


def _span(chunk: Chunk, row: int, page_tokens: int) -> Span:
    pages = torch.tensor(_pages(chunk, page_tokens))
    positions = torch.arange(chunk.start, chunk.start + chunk.count)
    seen = torch.arange(len(pages) * page_tokens)
    return Span(slice(row, row + chunk.count), pages, seen <= positions[:, None])


def _groups(rows: Sequence[tuple[Chunk, int]], page_tokens: int) -> Iterator[list[tuple[Chunk, int]]]:
    """Singles by length; a group ends where a context is over twice its shortest."""
    singles = sorted((entry for entry in rows if entry[0].count == 1), key=lambda entry: entry[0].start)
    group: list[tuple[Chunk, int]] = []
    for entry in singles:
        if group and len(_pages(entry[0], page_tokens)) > 2 * len(_pages(group[0][0], page_tokens)):
            yield group
            group = []
        group.append(entry)
    if group:
        yield group


def _singles(group: Sequence[tuple[Chunk, int]], page_tokens: int) -> Singles:
    tables = [_pages(chunk, page_tokens) for chunk, _ in group]
    longest = max(map(len, tables))
    lengths = torch.tensor([chunk.start for chunk, _ in group])
    seen = torch.arange(longest * page_tokens)
    return Singles(
        rows=torch.tensor([row for _, row in group]),
        pages=torch.tensor([table + [0] * (longest - len(table)) for table in tables]),
        mask=(seen <= lengths[:, None])[:, None, None],
    )

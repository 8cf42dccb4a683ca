"""A plan as tensors: one ragged row per token for the linear layers, sequences by shape for attention.

Rows follow the plan's chunks. Chunks of one token ("singles": decodes, and prompts with one token left) attend
together, padded in groups whose longest context is at most twice the shortest; longer chunks attend one by one.
Layers that see only a window of the context have a layout of their own: pages wholly behind it are not read.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from paceline_workers.engine.scheduling import Chunk, Plan

_ALL = frozenset({None})


@dataclass(frozen=True, slots=True)
class Span:
    """A chunk of several tokens: its rows, and the pages of the context that any of them sees, the chunk's included.

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
class Layout:
    """What attends to what in layers of one window."""

    spans: tuple[Span, ...]
    singles: tuple[Singles, ...]


@dataclass(frozen=True, slots=True)
class Batch:
    """`slots`: where each row's key and value go, page * page_tokens + offset; `sampled`: rows whose logits count.

    `layouts`: by the tokens that a layer sees; None: all.
    """

    tokens: Tensor
    positions: Tensor
    slots: Tensor
    layouts: Mapping[int | None, Layout]
    sampled: Tensor

    @classmethod
    def of(cls, plan: Plan, page_tokens: int, windows: Collection[int | None] = _ALL) -> "Batch":
        """Lay out a plan for layers with these windows; `plan.chunks` must not be empty."""
        chunks = plan.chunks
        starts = [0, *accumulate(chunk.count for chunk in chunks)]
        rows = list(zip(chunks, starts, strict=False))
        positions = torch.cat([torch.arange(chunk.start, chunk.start + chunk.count) for chunk in chunks])
        return cls(
            tokens=torch.tensor([token for chunk in chunks for token in _tokens(chunk)]),
            positions=positions,
            slots=torch.cat([_slots(chunk, page_tokens) for chunk in chunks]),
            layouts={window: _layout(rows, page_tokens, window) for window in windows},
            sampled=torch.tensor([row + chunk.count - 1 for chunk, row in rows if chunk.samples], dtype=torch.long),
        )


@dataclass(frozen=True, slots=True)
class _Sight:
    """A chunk as attention sees it: its first row, and the pages that matter to it, of which `first` is the first."""

    chunk: Chunk
    row: int
    first: int
    pages: list[int]

    @classmethod
    def of(cls, chunk: Chunk, row: int, page_tokens: int, window: int | None) -> "_Sight":
        first = 0 if window is None else max(chunk.start + 1 - window, 0) // page_tokens
        last = -(-(chunk.start + chunk.count) // page_tokens)
        return cls(chunk, row, first, chunk.request.pages[first:last])


def _tokens(chunk: Chunk) -> list[int]:
    """A zero stands for a last token that is still being drawn."""
    tokens = chunk.request.tokens[chunk.start : chunk.start + chunk.count]
    return tokens if len(tokens) == chunk.count else [*tokens, 0]


def _slots(chunk: Chunk, page_tokens: int) -> Tensor:
    positions = torch.arange(chunk.start, chunk.start + chunk.count)
    return torch.tensor(chunk.request.pages)[positions // page_tokens] * page_tokens + positions % page_tokens


def _layout(rows: Sequence[tuple[Chunk, int]], page_tokens: int, window: int | None) -> Layout:
    sights = [_Sight.of(chunk, row, page_tokens, window) for chunk, row in rows]
    return Layout(
        spans=tuple(_span(sight, page_tokens, window) for sight in sights if sight.chunk.count > 1),
        singles=tuple(_singles(group, page_tokens, window) for group in _groups(sights)),
    )


def _visible(seen: Tensor, positions: Tensor, window: int | None) -> Tensor:
    """Which positions `seen` those in `positions` may attend to: none after them, none behind the window."""
    return seen <= positions if window is None else (seen <= positions) & (seen > positions - window)


def _span(sight: _Sight, page_tokens: int, window: int | None) -> Span:
    chunk = sight.chunk
    positions = torch.arange(chunk.start, chunk.start + chunk.count)
    seen = torch.arange(sight.first * page_tokens, (sight.first + len(sight.pages)) * page_tokens)
    rows = slice(sight.row, sight.row + chunk.count)
    return Span(rows, torch.tensor(sight.pages), _visible(seen, positions[:, None], window))


def _groups(sights: Sequence[_Sight]) -> Iterator[list[_Sight]]:
    """Singles by length; a group ends where a context is over twice its shortest."""
    singles = sorted((sight for sight in sights if sight.chunk.count == 1), key=lambda sight: len(sight.pages))
    group: list[_Sight] = []
    for sight in singles:
        if group and len(sight.pages) > 2 * len(group[0].pages):
            yield group
            group = []
        group.append(sight)
    if group:
        yield group


def _singles(group: Sequence[_Sight], page_tokens: int, window: int | None) -> Singles:
    longest = max(len(sight.pages) for sight in group)
    positions = torch.tensor([sight.chunk.start for sight in group])[:, None]
    begins = torch.tensor([sight.first * page_tokens for sight in group])[:, None]
    return Singles(
        rows=torch.tensor([sight.row for sight in group]),
        pages=torch.tensor([sight.pages + [0] * (longest - len(sight.pages)) for sight in group]),
        mask=_visible(begins + torch.arange(longest * page_tokens), positions, window)[:, None, None],
    )

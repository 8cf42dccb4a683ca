"""A plan as tensors: one ragged row for each token for the linear layers, sequences by shape for attention.

Rows follow the plan's chunks. Chunks of one token ("singles": decodes, and prompts with one token left) attend
together, padded in groups whose longest context is at most twice the shortest; longer chunks attend one by one.
A page holds a block for each kv head, so block tables hold block numbers, head by head: page * heads + head.
Layers that see only a window of the context, and perhaps its first tokens, have a layout of their own: pages that are
no longer visible at all are not read, and may be missing from the block table.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf

import torch
from torch import Tensor

from paceline_workers.engine.kv_cache.attention_window import ALL, AttentionWindow
from paceline_workers.engine.scheduling import Chunk, Request, StepPlan

_ALL = frozenset({ALL})


@dataclass(frozen=True, slots=True)
class View:
    """A chunk in attention: its first row, and the pages that it needs: the head, and those from `first` on."""

    chunk: Chunk
    row: int
    first: int
    pages: list[int]

    @classmethod
    def of(cls, chunk: Chunk, row: int, page_tokens: int, attention_window: AttentionWindow) -> "View":
        request = chunk.request
        first, head = attention_window.first(chunk.start, page_tokens), attention_window.head(page_tokens)
        last = -(-(chunk.start + chunk.count) // page_tokens)
        behind = request.pages[first - request.dropped : max(last - request.dropped, 0)]
        return cls(chunk, row, first, request.pages[: min(head, last)] + behind if head else behind)


@dataclass(frozen=True, slots=True)
class Span:
    """A chunk of several tokens: its rows, and the blocks of the context that they see, including the chunk's own.

    blocks [kv heads, pages]; mask [tokens, context]: which of the gathered tokens each row may see.
    """

    rows: slice
    blocks: Tensor
    mask: Tensor


@dataclass(frozen=True, slots=True)
class Singles:
    """Chunks of one token: rows [n], blocks [n * kv heads, most pages].

    mask [n * kv heads, 1, most pages * page_tokens]: 0 for what a row may see, else minus infinity, to be added.
    The position of each row's own token, head by head [n * kv heads]: `slots` in the pool, `places` among the gathered.
    """

    views: tuple[View, ...]
    rows: Tensor
    blocks: Tensor
    mask: Tensor
    slots: Tensor
    places: Tensor


@dataclass(frozen=True, slots=True)
class Layout:
    """The chunks of a step, for the layers of one attention window."""

    spans: tuple[Span, ...]
    singles: tuple[Singles, ...]

    @classmethod
    def of(cls, rows: Sequence[tuple[Chunk, int]], size: "_Size", attention_window: AttentionWindow) -> "Layout":
        """Singles of similar lengths attend in one group, which ends where a context is over twice its shortest.

        A group keeps the order of rows, so that a context that outgrows its neighbour's changes nothing.
        """
        views = [View.of(chunk, row, size.tokens, attention_window) for chunk, row in rows]
        groups: list[list[View]] = []
        for view in sorted((view for view in views if view.chunk.count == 1), key=lambda view: len(view.pages)):
            if groups and len(view.pages) <= 2 * len(groups[-1][0].pages):
                groups[-1].append(view)
            else:
                groups.append([view])
        return cls(
            spans=tuple(_span(view, size, attention_window) for view in views if view.chunk.count > 1),
            singles=tuple(
                _singles(tuple(sorted(group, key=lambda view: view.row)), size, attention_window) for group in groups
            ),
        )


@dataclass(frozen=True, slots=True)
class Batch:
    """`slots`: where each row's keys and values are written, head by head: block * page_tokens + offset.

    `sampled`: rows whose logits are needed: the last row of each chunk that samples, then the `scored` rows of others.
    `layouts`: by attention window. `unknown`: rows whose token is still being drawn, and for which request.
    """

    tokens: Tensor
    positions: Tensor
    slots: Tensor
    layouts: Mapping[AttentionWindow, Layout]
    sampled: Tensor
    unknown: Sequence[tuple[int, Request]]

    @classmethod
    def of(
        cls, plan: StepPlan, page_tokens: int, heads: int, attention_windows: Collection[AttentionWindow] = _ALL
    ) -> "Batch":
        """Lay out a plan for layers with this many kv heads and these windows; `plan.chunks` must not be empty."""
        chunks, size = plan.chunks, _Size(page_tokens, heads)
        starts = [0, *accumulate(chunk.count for chunk in chunks)]
        rows = list(zip(chunks, starts, strict=False))
        tokens: list[int] = []
        unknown: list[tuple[int, Request]] = []
        for chunk in chunks:
            known = chunk.request.tokens[chunk.start : chunk.start + chunk.count]
            tokens += known
            if len(known) < chunk.count:
                unknown.append((len(tokens), chunk.request))
                tokens.append(0)
        return cls(
            tokens=torch.tensor(tokens),
            positions=torch.tensor([place for c in chunks for place in range(c.start, c.start + c.count)]),
            slots=size.spread([slot for chunk in chunks for slot in _slots(chunk, size)], page_tokens),
            layouts={window: Layout.of(rows, size, window) for window in attention_windows},
            sampled=torch.tensor(
                [
                    *(row + chunk.count - 1 for chunk, row in rows if chunk.samples),
                    *(row + place for chunk, row in rows for place in range(chunk.scored)),
                ],
                dtype=torch.long,
            ),
            unknown=unknown,
        )


@dataclass(frozen=True, slots=True)
class _Size:
    """The size of a page: its tokens, and its blocks of as many tokens, one for each kv head."""

    tokens: int
    heads: int

    def spread(self, places: Sequence[int], step: int) -> Tensor:
        """[places * heads]: each place once for each head, increased by `step` for each next head."""
        return (torch.tensor(places)[:, None] + torch.arange(self.heads) * step).flatten()

    def blocks(self, tables: Sequence[Sequence[int]]) -> Tensor:
        """[tables * heads, pages] of block tables of equal length."""
        pages = torch.tensor(tables)[:, None] * self.heads
        return (pages + torch.arange(self.heads)[:, None]).flatten(0, 1)


def _slots(chunk: Chunk, size: _Size) -> Iterator[int]:
    """Where the first head of each token is written."""
    pages, dropped, tokens = chunk.request.pages, chunk.request.dropped, size.tokens
    for place in range(chunk.start, chunk.start + chunk.count):
        yield pages[place // tokens - dropped] * size.heads * tokens + place % tokens


def _visible(seen: Tensor, positions: Tensor, attention_window: AttentionWindow) -> Tensor:
    """Which of the positions `seen` those in `positions` may attend to: none after them, within the window."""
    past = seen <= positions
    if attention_window.window is None:
        return past
    near = seen > positions - attention_window.window
    return past & (near | (seen < attention_window.sinks) if attention_window.sinks else near)


def _span(view: View, size: _Size, attention_window: AttentionWindow) -> Span:
    chunk, head = view.chunk, attention_window.head(size.tokens)
    positions = torch.arange(chunk.start, chunk.start + chunk.count)
    seen = torch.arange(len(view.pages) * size.tokens)
    seen[head * size.tokens :] += (view.first - head) * size.tokens
    rows = slice(view.row, view.row + chunk.count)
    return Span(rows, size.blocks([view.pages]), _visible(seen, positions[:, None], attention_window))


def _singles(group: tuple[View, ...], size: _Size, attention_window: AttentionWindow) -> Singles:
    longest, head = max(len(view.pages) for view in group) * size.tokens, attention_window.head(size.tokens)
    positions = torch.tensor([view.chunk.start for view in group])
    gaps = torch.tensor([(view.first - head) * size.tokens for view in group])
    seen = torch.arange(longest)[None]
    if attention_window.window is not None:
        seen = seen + (seen >= head * size.tokens) * gaps[:, None]
    hidden = ~_visible(seen, positions[:, None], attention_window)
    blocks = [view.pages + [0] * (longest // size.tokens - len(view.pages)) for view in group]
    return Singles(
        views=group,
        rows=torch.tensor([view.row for view in group]),
        blocks=size.blocks(blocks),
        mask=torch.zeros(hidden.shape).masked_fill_(hidden, -inf).repeat_interleave(size.heads, 0)[:, None],
        slots=size.spread([slot for view in group for slot in _slots(view.chunk, size)], size.tokens),
        places=size.spread((torch.arange(len(group)) * size.heads * longest + positions - gaps).tolist(), longest),
    )
